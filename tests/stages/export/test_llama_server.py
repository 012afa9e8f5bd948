"""What llama.cpp itself makes of our files."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from data.vocabulary.training import train_vocabulary
from data.vocabulary.vocabulary import SPACE_SYMBOL, Vocabulary
from stages.errors import TryAgain
from stages.export import gguf_file
from stages.export.generate import continue_prompt
from stages.export.llama_server import LlamaServer, compare_greedy
from stages.export.tokenizer import EDGE_TEXTS, differences
from tests.data.texts import AWKWARD, prose
from tests.stages.export.made import model, tokenizer_model
from tests.stages.export.test_gguf_file import LLAMA3, YARN
from tests.stages.export.test_tokenizer import NEWLINE_SYMBOL, SPECIAL, train

PROMPTS = [[2, 40, 300], [2, 7], [2, 500, 21, 22, 23]]
STRINGS = [text for text in (*EDGE_TEXTS, *AWKWARD, *prose()[:5]) if SPACE_SYMBOL not in text]
STRINGS += ["user", "<|im_start|>user", " leading"]


def serve(path: Path, seconds: float = 60.0) -> LlamaServer:
    return LlamaServer(path, threads=1, context=64, seconds=seconds)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tokenizer_model(tmp_path_factory.mktemp("tokenizer"))


def test_next_tokens_and_ids_are_those_of_transformers_and_sentencepiece(tokenizer: Path, tmp_path: Path) -> None:
    made = model()
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", "f32")
    reference = [continue_prompt(made, prompt, max_new_tokens=20, end_id=2) for prompt in PROMPTS]
    with serve(tmp_path / "m.gguf") as server:
        greedy = compare_greedy(server, PROMPTS, reference)
        assert differences(Vocabulary.load(tokenizer).encode, server.tokenize, STRINGS) == []
        assert server.load_seconds > 0 and server.tokens_per_second(PROMPTS[0], 8) > 0
    assert greedy.compared + greedy.excluded == sum(len(continuation.tokens) for continuation in reference)
    assert greedy.same and greedy.compared >= 20


def sharp(**changes: Any) -> Any:
    """A model whose attention depends on positions so much that another rotation of them shows."""
    made = model(**changes)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("k_proj.weight"):
                parameter *= 2
    return made


def same_tokens(path: Path, made: Any) -> bool:
    """Whether llama.cpp goes on from long prompts as `made` does; enough of the tokens can be compared."""
    prompts = [[2, *range(first, first + 25)] for first in (40, 70)]
    reference = [continue_prompt(made, prompt, max_new_tokens=30, end_id=2) for prompt in prompts]
    with serve(path) as server:
        greedy = compare_greedy(server, prompts, reference)
    assert greedy.compared >= 20
    return greedy.same


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "mistral"},
        {"family": "qwen2"},
        {"family": "qwen3", "tie_word_embeddings": True},
        {"family": "granite", "attention_bias": True, "mlp_bias": True},
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
        {"rope_parameters": LLAMA3},
        {"family": "granite", "rope_parameters": LLAMA3},
        {"rope_parameters": YARN},
        {"family": "qwen3", "rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 3.0}},
    ],
    ids=lambda changes: " ".join(
        [changes.get("family", "llama"), changes.get("rope_parameters", {}).get("rope_type", "")]
    ),
)
def test_every_family_goes_on_as_transformers_does(changes: dict[str, Any], tokenizer: Path, tmp_path: Path) -> None:
    made = sharp(**changes)
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", "f32")
    assert same_tokens(tmp_path / "m.gguf", made)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ({"rope_parameters": LLAMA3}, {}),
        ({"rope_parameters": YARN}, {"rope_parameters": {"rope_type": "linear", "rope_theta": 5000.0, "factor": 4.0}}),
        ({"family": "granite"}, {"family": "granite", "attention_multiplier": 0.35}),
        ({"family": "granite"}, {"family": "granite", "residual_multiplier": 0.6}),
    ],
    ids=["llama3", "yarn", "attention", "residual"],
)
def test_another_header_gives_other_tokens(
    right: dict[str, Any], wrong: dict[str, Any], tokenizer: Path, tmp_path: Path
) -> None:
    """The negative control: the same weights, described otherwise."""
    gguf_file.write(sharp(**wrong), tokenizer, tmp_path / "m.gguf", "f32")
    assert not same_tokens(tmp_path / "m.gguf", sharp(**right))


def test_wrongly_permuted_keys_give_other_tokens(
    tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control of the comparison."""
    made = model()
    monkeypatch.setattr(
        gguf_file,
        "_heads",
        lambda name, heads, kv: heads if "q_proj" in name else heads // kv if "k_proj" in name else None,
    )
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", "f32")
    reference = [continue_prompt(made, prompt, max_new_tokens=20, end_id=2) for prompt in PROMPTS]
    with serve(tmp_path / "m.gguf") as server:
        assert not compare_greedy(server, PROMPTS, reference).same


def test_special_tokens_of_the_tokenizer_are_known_and_stay_out_of_text(tmp_path: Path) -> None:
    source = tmp_path / "tokenizer.model"
    source.write_bytes(train_vocabulary([text[:3000] for text in prose()[:10]], size=450, special_tokens=SPECIAL))
    gguf_file.write(model(vocab_size=450, num_hidden_layers=1), source, tmp_path / "m.gguf", "f32")
    encode = Vocabulary.load(source).encode
    with serve(tmp_path / "m.gguf") as server:
        assert differences(encode, server.tokenize, [*STRINGS, *SPECIAL, "a<|im_end|>b"]) == []
        found = server._post("/tokenize", {"content": "<|im_start|>user<|im_end|>", "parse_special": True})
    assert found["tokens"] == [3, *encode("user"), 4], "and no space is put behind a special token"


def test_a_newline_symbol_of_the_tokenizer_is_kept(tmp_path: Path) -> None:
    source = train(tmp_path / "other.model", **NEWLINE_SYMBOL)
    made = model(vocab_size=450, num_hidden_layers=1)
    gguf_file.write(made, source, tmp_path / "m.gguf", "f32")
    with serve(tmp_path / "m.gguf") as server:
        assert differences(Vocabulary.load(source).encode, server.tokenize, STRINGS) == []


@pytest.mark.parametrize("token", [2, 203], ids=["end of document", "a byte that is no character"])
def test_tokens_without_text_are_given_too(token: int, tokenizer: Path, tmp_path: Path) -> None:
    made = model()
    with torch.no_grad():
        made.lm_head.weight[token] = 50 * made.model(torch.tensor([PROMPTS[0]])).last_hidden_state[0, -1]
    gguf_file.write(made, tokenizer, tmp_path / "m.gguf", "f32")
    with serve(tmp_path / "m.gguf") as server:
        assert server.next_token(PROMPTS[0]) == token


def test_a_file_that_cannot_be_loaded_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF nonsense")
    with pytest.raises(RuntimeError, match=r"llama.cpp cannot load m.gguf:\n(.|\n)*gguf"), serve(tmp_path / "m.gguf"):
        pass


def test_time_that_is_up_is_try_again_and_leaves_no_process(tokenizer: Path, tmp_path: Path) -> None:
    gguf_file.write(model(), tokenizer, tmp_path / "m.gguf", "f32")
    with serve(tmp_path / "m.gguf") as server:
        process = server._process
        os.kill(process.pid, signal.SIGSTOP)
        server._deadline = time.monotonic() + 0.2
        with pytest.raises(TryAgain, match="server_seconds"):
            server.next_token(PROMPTS[0])
        os.kill(process.pid, signal.SIGCONT)
    assert process.poll() is not None
    slow = serve(tmp_path / "m.gguf", seconds=0.0)
    with pytest.raises(TryAgain, match="did not load"), slow:
        pass
    assert slow._process.poll() is not None


def test_the_server_ends_with_the_process_that_started_it(tokenizer: Path, tmp_path: Path) -> None:
    gguf_file.write(model(), tokenizer, tmp_path / "m.gguf", "f32")
    program = (
        "import os, signal, sys; from pathlib import Path; from stages.export.llama_server import LlamaServer\n"
        "server = LlamaServer(Path(sys.argv[1]), threads=1, context=64, seconds=60).__enter__()\n"
        "print(server._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "m.gguf")], capture_output=True, text=True)
    pid = int(done.stdout)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
            break
        time.sleep(0.05)
    assert time.monotonic() < deadline, "the server outlived the process that started it"
