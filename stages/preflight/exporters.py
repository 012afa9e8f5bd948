"""Every exporter tried on random weights of the real shape: written, read back, and compared.

Two layers stand for all: each kind of tensor is there in its real size. The weights are drawn so that every part
counts: with those that a training begins with, attention is nearly uniform, and llama.cpp gives the right tokens even
where the rows of a key projection are in the wrong order.
"""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.vocabulary.vocabulary import NUM_CONTROL, Vocabulary
from stages.export import gguf_file, hf
from stages.export import tokenizer as export_tokenizer
from stages.export.generate import continue_prompt
from stages.export.llama_server import LlamaServer, compare_greedy
from stages.export.tokenizer import EDGE_TEXTS, differences, load_tokenizer
from stages.preflight import checks
from stages.preflight.checks import Check, Status
from stages.pretrain.config import ModelConfig

if TYPE_CHECKING:
    import torch

MOST_LAYERS = 2
PROBE_TOKENS = 16
GREEDY_TOKENS = 24
SHARPNESS = 2.0
Q4_0_ERROR = 0.12  # of normal weights, root mean square against their own: 0.09 measured
Try = Callable[[], Check]


class Exporters:
    """One random model, and a check for each form. `folder` takes the files; it is the caller's to delete."""

    def __init__(
        self,
        shape: ModelConfig,
        *,
        vocabulary_size: int,
        eos_id: int,
        tokenizer_model: Path,
        folder: Path,
        threads: int,
    ) -> None:
        """shape: resolved."""
        from stages.pretrain.model.build import build, huggingface_config

        few = shape.model_copy(update={"num_layers": min(MOST_LAYERS, shape.num_layers)})
        self.model = build(huggingface_config(few, vocabulary_size=vocabulary_size, eos_id=eos_id)).eval()
        _draw_weights(self.model)
        self.tokenizer_model = tokenizer_model
        self._eos_id = eos_id
        self._folder = folder
        self._threads = threads
        num_probe = min(PROBE_TOKENS, shape.context_tokens // 2)
        self._num_greedy = min(GREEDY_TOKENS, shape.context_tokens - num_probe)
        self._probe = [NUM_CONTROL + 7 * place % (vocabulary_size - NUM_CONTROL) for place in range(num_probe)]

    def checks(self, server_seconds: float) -> Iterator[tuple[str, Try]]:
        """(name, how to find out), in order."""
        yield "export hf", self.hugging_face
        yield "export gguf-f32", lambda: self.gguf("f32")
        yield "export gguf-q4_0", lambda: self.gguf("q4_0")
        yield "llama.cpp", lambda: self.llama_cpp(server_seconds)

    def hugging_face(self) -> Check:
        """Weights bit for bit, the same logits, and the tokenizer's ids."""
        from transformers import PreTrainedTokenizerFast

        unfit = export_tokenizer.unfit(self.tokenizer_model, gguf=False)
        if unfit:
            return _no_such_form("export hf", unfit)
        folder = self._folder / "hf"
        hf.save(self.model, self.tokenizer_model, folder, eos_id=self._eos_id)
        loaded = hf.load(folder)
        tokenizer = load_tokenizer(folder)
        wrong = self._unequal_weights(loaded, exact=True) + self._unequal_logits(loaded)
        unequal = self._unequal_ids(lambda text: tokenizer.encode(text, add_special_tokens=False))
        if unequal and type(tokenizer) is not PreTrainedTokenizerFast:
            unequal = [self._read_as(type(tokenizer).__name__)]
        wrong += unequal
        return checks.form("export hf", wrong, "weights, logits and tokenizer come back equal")

    def gguf(self, quantisation: gguf_file.Quantisation) -> Check:
        """Weights bit for bit in f32, within the error of four bits in q4_0."""
        name = f"export gguf-{quantisation}"
        if find_spec("gguf") is None:
            return checks.not_applicable(name, "the package gguf is not installed here")
        unfit = gguf_file.unfit(self.model.config, quantisation)
        unfit += export_tokenizer.unfit(self.tokenizer_model, gguf=True)
        if unfit:
            return _no_such_form(name, unfit)
        path = self._gguf_path(quantisation)
        gguf_file.write(self.model, self.tokenizer_model, path, quantisation)
        loaded = gguf_file.load(path, self.model.config)
        if quantisation == "f32":
            wrong = self._unequal_weights(loaded, exact=True) + self._unequal_logits(loaded)
            return checks.form(name, wrong, "weights and logits come back equal")
        wrong = self._unequal_weights(loaded, exact=False)
        return checks.form(name, wrong, f"each matrix comes back within {Q4_0_ERROR:.0%}")

    def llama_cpp(self, seconds: float) -> Check:
        """llama.cpp loads the f32 file, has the tokenizer's ids, and goes on with the tokens of transformers."""
        name = "llama.cpp"
        path = self._gguf_path("f32")
        if find_spec("xllamacpp") is None:
            return checks.not_applicable(name, "the package xllamacpp is not installed here")
        if not path.exists():
            return checks.not_applicable(name, "there is no GGUF file to load")
        reference = continue_prompt(self.model, self._probe, max_new_tokens=self._num_greedy, end_id=self._eos_id)
        context = self.model.config.max_position_embeddings
        with LlamaServer(path, threads=self._threads, context=context, seconds=seconds) as server:
            wrong = self._unequal_ids(server.tokenize)
            greedy = compare_greedy(server, [self._probe], [reference])
        if not greedy.same:
            wrong.append(f"{greedy.compared - greedy.equal} of {greedy.compared} next tokens differ from transformers'")
        return checks.form(name, wrong, f"{greedy.compared} next tokens and the tokenizer are those of transformers")

    def _gguf_path(self, quantisation: str) -> Path:
        return self._folder / f"model-{quantisation}.gguf"

    def _unequal_weights(self, loaded: Any, *, exact: bool) -> list[str]:
        found = []
        theirs = dict(loaded.named_parameters())
        for name, ours in self.model.named_parameters():
            error = _relative_error(ours, theirs[name])
            if not error <= (0.0 if exact else Q4_0_ERROR):
                found.append(f"{name} comes back with an error of {error:.3g}")
        return found

    def _unequal_logits(self, loaded: Any) -> list[str]:
        import torch

        ids = torch.tensor([self._probe])
        with torch.inference_mode():
            same = torch.equal(self.model(input_ids=ids).logits, loaded(input_ids=ids).logits)
        return [] if same else ["the same tokens give other logits"]

    def _read_as(self, kind: str) -> str:
        """Why a tokenizer differs although its files are right."""
        family = self.model.config.model_type
        return (
            f"AutoTokenizer reads the tokenizer of every {family} model as a {kind}, whatever its files say, and this "
            f"one is none: set model.family to another than {family}, or tokenizer.existing to the tokenizer.json of a "
            f"published {family} model"
        )

    def _unequal_ids(self, encode: Callable[[str], list[int]]) -> list[str]:
        return [
            f"the tokenizer differs: {difference}"
            for difference in differences(
                Vocabulary.load_folder(self.tokenizer_model.parent).encode, encode, EDGE_TEXTS
            )
        ]


def _no_such_form(name: str, unfit: list[str]) -> Check:
    advice = "change [model] or [tokenizer], or leave it out of export.forms"
    return Check(name=name, status=Status.WARN, detail=f"no such form ({'; '.join(unfit)}): {advice}")


def _draw_weights(model: Any) -> None:
    """Norms near 1; matrices normal, keeping the size of what they are multiplied with, queries and keys SHARPNESS
    times that, so that attention tells positions apart.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5, generator=generator)
                continue
            gain = SHARPNESS if name.endswith(("q_proj.weight", "k_proj.weight")) else 1.0
            parameter.normal_(0.0, gain / parameter.shape[1] ** 0.5, generator=generator)


def _relative_error(ours: "torch.Tensor", theirs: "torch.Tensor") -> float:
    """Root mean square of the difference over that of `ours`; infinite for another shape."""
    if ours.shape != theirs.shape:
        return float("inf")
    return float((ours.detach() - theirs.detach()).norm() / ours.detach().norm())
