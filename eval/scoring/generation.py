"""Continuations of many contexts, in batches of like length; what was read is kept where the model can keep it.

A row goes on as it would alone, up to rounding in its logits.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from eval.scoring.model import LanguageModel, OpenModel, opened


@dataclass(kw_only=True)
class _Text:
    """One context and what came after it."""

    number: int
    prompt: Sequence[int]
    new: list[int] = field(default_factory=list)


def generate(
    model: LanguageModel,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    end_tokens: frozenset[int],
    stop: Callable[[list[int]], bool],
    temperature: float,
    seed: int,
    batch_tokens: int,
    between: Callable[[], None],
    progress: Callable[[int, int], None] | None,
    numbers: Sequence[int],
) -> list[list[int]]:
    """`Scorer.generate`, of prompts that are complete, with the numbers by which tokens are drawn. A batch holds at
    most `batch_tokens` tokens with those to come, unless it is one prompt.
    """
    texts = [_Text(number=number, prompt=prompt) for number, prompt in zip(numbers, prompts, strict=True)]

    def goes_on(text: _Text, logits: Tensor) -> bool:
        token = _choose(logits, temperature, seed, text)
        if token in end_tokens:
            return False
        text.new.append(token)
        return len(text.new) < max_new_tokens and not stop(text.new)

    done = 0
    if max_new_tokens > 0:
        for batch in _batches(model, texts, max_new_tokens, batch_tokens):
            between()
            keeping = _keeping(model, batch[0], max_new_tokens)
            if keeping is None:
                _continue_alone(model, batch[0], goes_on)
            else:
                _continue_together(keeping, batch, goes_on)
            done += len(batch)
            if progress is not None:
                progress(done, len(texts))
    return [text.new for text in texts]


def _keeping(model: LanguageModel, text: _Text, max_new_tokens: int) -> OpenModel | None:
    """The model, if it can keep what was read and nothing has to be forgotten."""
    return opened(model) if len(text.prompt) + max_new_tokens <= model.max_length else None


def _batches(
    model: LanguageModel, texts: Sequence[_Text], max_new_tokens: int, batch_tokens: int
) -> Iterator[list[_Text]]:
    batch: list[_Text] = []
    for text in sorted(texts, key=lambda text: -len(text.prompt)):
        size = len(batch[0].prompt) + max_new_tokens if batch else 0
        alone = batch and _keeping(model, batch[0], max_new_tokens) is None
        if batch and (alone or (len(batch) + 1) * size > batch_tokens):
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


@torch.inference_mode()
def _continue_together(model: OpenModel, batch: Sequence[_Text], goes_on: Callable[[_Text, Tensor], bool]) -> None:
    length = max(len(text.prompt) for text in batch)
    padding = torch.tensor([length - len(text.prompt) for text in batch])
    tokens = torch.tensor([[text.prompt[0]] * (length - len(text.prompt)) + list(text.prompt) for text in batch])
    reading = model.read(tokens, padding)
    while True:
        logits = reading.logits.cpu()
        rows = [row for row, text in enumerate(batch) if goes_on(text, logits[row])]
        if not rows:
            return
        if len(rows) < len(batch):
            batch = [batch[row] for row in rows]
            reading.keep(rows)
        reading.extend(torch.tensor([text.new[-1] for text in batch]))


@torch.inference_mode()
def _continue_alone(model: LanguageModel, text: _Text, goes_on: Callable[[_Text, Tensor], bool]) -> None:
    """Reads the last `max_length` tokens again for each new one."""
    while goes_on(text, model.logits(torch.tensor([[*text.prompt, *text.new][-model.max_length :]]), 1)[0, 0].cpu()):
        pass


def _choose(logits: Tensor, temperature: float, seed: int, text: _Text) -> int:
    """`logits: float32[vocabulary_size]`. Draws by adding Gumbel noise (Gumbel 1954; Maddison et al. 2014)."""
    if temperature == 0:
        return int(logits.argmax())
    name = f"{seed}/{text.number}/{len(text.new)}".encode()
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name).digest()[:7], "little"))
    noise = torch.empty_like(logits, dtype=torch.float64).exponential_(generator=generator)
    return int((logits.double() / temperature - noise.log()).argmax())
