"""The text that a vocabulary is trained on: drawn from every domain within a budget of bytes, and nothing skipped
unseen.

SentencePiece's trainer takes text in sentences. It leaves out, without an error, a sentence that is too long and one
that holds a character of its own, so documents are cut into chunks that it takes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from data.errors import InputError
from data.order.permutation import derive_key, permute

CHUNK_BYTES = 4096
MAX_SAMPLE_BYTES = 2_000_000_000  # keeps every counter of the trainer far from 32 bits
RESERVED = "\u2581\u2585"  # the trainer takes the first for a space, and leaves out a sentence with the second


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Text to train on. `chunks`: pieces of at most CHUNK_BYTES bytes. `sampled_bytes` by domain; reserved characters
    are part of them and of no chunk.
    """

    chunks: tuple[str, ...]
    sampled_bytes: dict[str, int]
    reserved_bytes: int

    @property
    def skipped_bytes(self) -> int:
        """Bytes that were drawn and reach no chunk, reserved characters apart."""
        return (
            sum(self.sampled_bytes.values()) - self.reserved_bytes - sum(len(chunk.encode()) for chunk in self.chunks)
        )


def draw_sample(
    texts: Mapping[str, pa.ChunkedArray], *, budget_bytes: int, seed: int, weights: Mapping[str, float] | None = None
) -> Sample:
    """A sample of at most `budget_bytes` bytes over all domains; the same for the same seed.

    texts: domain -> large_string or string column. weights: share of each domain, by default its share of the bytes;
    what a domain cannot fill goes to the others. Documents are drawn in a keyed order; the last one is cut to fit.
    """
    if budget_bytes > MAX_SAMPLE_BYTES:
        raise InputError(
            f"a tokenizer sample of {budget_bytes} bytes is more than the trainer can count; use at most "
            f"{MAX_SAMPLE_BYTES}"
        )
    if weights:
        missing = sorted(set(texts) ^ set(weights))
        if missing:
            raise InputError(
                f"the sample's weights must name each domain once; they differ in {missing} (the corpus has "
                f"{sorted(texts)})"
            )
    import pyarrow.compute as pc

    available = {domain: int(pc.sum(pc.binary_length(column)).as_py() or 0) for domain, column in texts.items()}
    quota = _shares(available, dict(weights) if weights else {d: float(n) for d, n in available.items()}, budget_bytes)
    chunks: list[str] = []
    sampled: dict[str, int] = {}
    reserved = 0
    for domain in sorted(texts):
        left = quota[domain]
        order = permute(np.arange(len(texts[domain])), len(texts[domain]), derive_key("tokenizer sample", seed, domain))
        for index in order:
            if left == 0:
                break
            content = texts[domain][int(index)].as_py().encode()
            text = content[:left].decode(errors="ignore")
            left = 0 if len(content) > left else left - len(content)
            sampled[domain] = sampled.get(domain, 0) + len(text.encode())
            reserved += sum(len(character.encode()) * text.count(character) for character in RESERVED)
            for part in re.split(f"[{RESERVED}]", text):
                chunks.extend(_chunks(part))
    return Sample(chunks=tuple(chunks), sampled_bytes=sampled, reserved_bytes=reserved)


def _shares(available: dict[str, int], weights: dict[str, float], budget: int) -> dict[str, int]:
    """Whole bytes by domain, in proportion to the weights, no domain above what it has, at most `budget` in all."""
    quota: dict[str, int] = {}
    open_domains = sorted(available)
    while open_domains:
        left = budget - sum(quota.values())
        total = sum(weights[d] for d in open_domains)
        share = {d: int(left * weights[d] / total) if total else 0 for d in open_domains}
        full = [d for d in open_domains if available[d] <= share[d]]
        quota.update({d: available[d] if full else share[d] for d in full or open_domains})
        open_domains = [d for d in open_domains if d not in quota]
    return quota


def _chunks(text: str) -> Iterator[str]:
    """The text in pieces of at most CHUNK_BYTES bytes, cut before a space where there is one, never inside a
    character.
    """
    content = text.encode()
    start = 0
    while start < len(content):
        end = min(start + CHUNK_BYTES, len(content))
        if end < len(content):
            space = content.rfind(b" ", start + 1, end)
            end = space if space > 0 else end
            while content[end] & 0xC0 == 0x80:
                end -= 1
        yield content[start:end].decode()
        start = end
