"""Against lm-eval's own adapter for transformers, item by item, on a small model with and without a start token."""

from pathlib import Path
from typing import Any

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from eval.harness import HarnessModel
from eval.scoring.pretrained_tokenizer import PretrainedTokenizer
from eval.scoring.scorer import Scorer
from eval.scoring.transformers_model import TransformersModel
from tests.eval.scoring.models import small

WORDS = ["the", "cat", "sat", "on", "a", "mat", "dog", "ran", "to", "big", "red", "house", "my", "hat", ".", ":", "Q"]
PAIRS = [
    ("", "the cat sat on a mat"),
    ("", "the cat sat on a house"),
    ("Q : the dog ran to", " a house"),
    ("Q : the dog ran to", " a red house"),
    ("Q : the dog ran to ", "my big hat ."),
    ("the cat " * 30, "sat on a mat"),
    ("Q", " :"),
]


def tokenizer(folder: Path, *, puts_start: bool) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["<pad>", "<s>", "</s>", "<unk>", *WORDS]
    made = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if puts_start:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def instances(kind: Any, arguments: list[tuple]) -> list[Instance]:
    return [Instance(request_type=kind, doc={}, arguments=parts, idx=0) for parts in arguments]


@pytest.mark.parametrize("puts_start", [False, True])
def test_every_kind_of_request_gives_what_lm_eval_gives(puts_start: bool, tmp_path: Path) -> None:
    words = tokenizer(tmp_path, puts_start=puts_start)
    model = small()
    peer = HFLM(pretrained=model, tokenizer=words, batch_size=3, device="cpu", max_length=48)
    ours = PretrainedTokenizer(words)
    assert ours.puts_start == puts_start and ours.encode("<s> the") == [1, 4], "no second start token"
    scorer = Scorer(TransformersModel(model), prefix_token=ours.prefix_id, always_prefix=False, end_tokens=ours.end_ids)
    adapter = HarnessModel(scorer, ours)
    asked = instances("loglikelihood", PAIRS)
    for (found, greedy), (wanted, was_greedy) in zip(
        adapter.loglikelihood(asked), peer.loglikelihood(asked, disable_tqdm=True), strict=True
    ):
        assert found == pytest.approx(wanted, abs=1e-4) and greedy == was_greedy
    texts = instances("loglikelihood_rolling", [("the cat sat on a mat " * 25,), ("Q",), ("the dog ran .",)])
    peer.add_bos_token = False  # where the tokenizer puts a start token, lm-eval reads two and scores the second
    assert adapter.loglikelihood_rolling(texts) == pytest.approx(
        peer.loglikelihood_rolling(texts, disable_tqdm=True), abs=1e-4
    )
    peer.add_bos_token = None
    settings = {"until": ["mat"], "max_gen_toks": 6, "do_sample": False}
    contexts = ("the cat", "Q : a big red dog", "Q")
    prompts = instances("generate_until", [(context, dict(settings)) for context in contexts])
    assert [text.strip() for text in adapter.generate_until(prompts)] == [
        text.strip() for text in peer.generate_until(prompts, disable_tqdm=True)
    ]
