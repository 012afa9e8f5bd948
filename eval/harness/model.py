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
from eval.scoring.encoding import encode_pair
from eval.scoring.scorer import Progress, Scorer
from eval.subject import Tokenizer


class HarnessModel(LM):
    """The scorer as lm-eval knows models. `progress` is called with (done, total) scored pieces."""

    def __init__(self, scorer: Scorer, tokenizer: Tokenizer, progress: Progress | None = None) -> None:
        super().__init__()
        self._scorer = scorer
        self._tokenizer = tokenizer
        self._progress = progress

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        pairs = [encode_pair(self._tokenizer.encode, *request.args) for request in requests]
        return [(score.log_likelihood, score.is_greedy) for score in self._scorer.score(pairs, self._progress)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        sequences = [self._tokenizer.encode(request.args[0]) for request in requests]
        return [score.log_likelihood for score in self._scorer.rolling(sequences, self._progress)]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        texts = []
        for done, request in enumerate(requests, 1):
            context, settings = request.args
            texts.append(self._generate(context, settings))
            if self._progress is not None:
                self._progress(done, len(requests))
        return texts

    def _generate(self, context: str, settings: Mapping[str, Any]) -> str:
        if settings.get("do_sample") and settings.get("temperature", 1.0) > 0:
            raise InputError(
                "a task asks for sampled generation; only greedy tasks can be scored, take it out of the suite"
            )
        until = settings.get("until") or []
        stops = [until] if isinstance(until, str) else list(until)
        max_new_tokens = min(int(settings.get("max_gen_toks", 256)), self._scorer.model.max_length - 1)
        prompt = list(self._tokenizer.encode(context))[-(self._scorer.model.max_length - max_new_tokens) :]
        decode = self._tokenizer.decode
        text = decode(
            self._scorer.greedy(
                prompt, max_new_tokens=max_new_tokens, stop=lambda new: any(stop in decode(new) for stop in stops)
            )
        )
        ends = [text.find(stop) for stop in stops if stop in text]
        return text[: min(ends)] if ends else text
