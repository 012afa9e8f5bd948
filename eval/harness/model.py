"""The scorer as an `lm_eval.api.model.LM`.

lm-eval sees one process and gets every request at once; how they are batched is the scorer's business, so prompts,
items counted and scores do not depend on a layout. No response is cached: a cache keyed by the text of a request would
give one checkpoint's answers to the next.
"""

from collections.abc import Mapping
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from data.errors import InputError
from eval.scoring.encoding import encode_pair, encode_pair_like_lm_eval
from eval.scoring.scorer import Progress, Scorer
from eval.subject import Tokenizer


class HarnessModel(LM):
    """The scorer as lm-eval knows models. `progress` is called with (done, total) scored pieces.

    A scorer that leaves the start token to the tokenizer, as for models from outside, gets contexts and answers cut as
    lm-eval cuts them, so that scores are equal to those that others report.
    """

    def __init__(self, scorer: Scorer, tokenizer: Tokenizer, progress: Progress | None = None) -> None:
        super().__init__()
        self._scorer = scorer
        self._tokenizer = tokenizer
        self._progress = progress

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        cut = encode_pair if self._scorer.always_prefix else encode_pair_like_lm_eval
        pairs = [cut(self._tokenizer.encode, *request.args) for request in requests]
        return [(score.log_likelihood, score.is_greedy) for score in self._scorer.score(pairs, self._progress)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Of whole texts. A start token that the tokenizer puts is the only one and is not scored; lm-eval's own
        adapter for transformers reads a second one there and scores it.
        """
        sequences = [self._tokenizer.encode(request.args[0]) for request in requests]
        return [score.log_likelihood for score in self._scorer.rolling(sequences, self._progress)]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """What each request's context is continued with. Requests that end alike are continued together."""
        groups: dict[tuple[int, tuple[str, ...]], list[int]] = {}
        for number, request in enumerate(requests):
            groups.setdefault(self._ends(request.args[1]), []).append(number)
        texts = [""] * len(requests)
        done, total = 0, len(requests)
        for (max_new_tokens, stops), members in groups.items():
            found = self._generate([requests[number].args[0] for number in members], max_new_tokens, stops, done, total)
            done += len(members)
            for number, text in zip(members, found, strict=True):
                texts[number] = text
        return texts

    def _ends(self, settings: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
        """The most new tokens of a request, and the texts that end its answer."""
        if settings.get("do_sample") and settings.get("temperature", 1.0) > 0:
            raise InputError(
                "a task asks for sampled generation; only greedy tasks can be scored, take it out of the suite"
            )
        until = settings.get("until") or []
        stops = (until,) if isinstance(until, str) else tuple(until)
        return min(int(settings.get("max_gen_toks", 256)), self._scorer.model.max_length - 2), stops

    def _generate(
        self, contexts: list[str], max_new_tokens: int, stops: tuple[str, ...], done: int, total: int
    ) -> list[str]:
        room = self._scorer.room(max_new_tokens)
        decode, progress = self._tokenizer.decode, self._progress
        found = self._scorer.generate(
            [list(self._tokenizer.encode(context))[-room:] for context in contexts],
            max_new_tokens=max_new_tokens,
            stop=lambda new: any(stop in decode(new) for stop in stops) if stops else False,
            progress=None if progress is None else lambda part, _: progress(done + part, total),
        )
        return [_cut(decode(new), stops) for new in found]


def _cut(text: str, stops: tuple[str, ...]) -> str:
    """The text before the first stop."""
    ends = [text.find(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text
