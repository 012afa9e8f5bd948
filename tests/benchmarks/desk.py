"""`make bench-desk`: what the desk costs where nothing is to be computed, and what a talkative stage costs.

* hit: a pipeline of which every artifact is there, through Prefect with a server of its own, from command to exit
  (`make bench-chain` has that of the demo), beside the same stages by their own commands; and, with a server that is
  there already, how long each stage takes inside the flow, from the start of its task to its end.
* start: `python -m stages.plan` on a store that has its artifact, and its --help, beside a bare `python -c pass`.
* journal: a stage that writes 10,000 lines a minute, at a real server: the CPU time of its own thread for writing the
  journal and the pipe as a share of that minute, that of the flow that listens, and what its server says of locks.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.recipe import CHAIN, load
from tests.benchmarks.chain import RECIPES, through_prefect
from tests.benchmarks.harness import Cost, interleave, measure, report

PACKAGES = ("prefect", "pydantic")
LINES_A_MINUTE = 10_000
CHILD = """
import json, sys, time
from pathlib import Path
from stages.cli import event_printer
from stages.journal import Journal

lines, seconds, folder = int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3])
printer = event_printer()
journal = Journal(folder / "events.jsonl", stage="pretrain", listeners=(printer,))
began, used = time.monotonic(), 0.0
for step in range(lines):
    before = time.thread_time()
    journal.event(
        "metric", step=step, loss=3.14159265, learning_rate=0.003, gradient_norm=1.2345678, tokens=2048 * step,
        tokens_per_second=8683.2, data_wait_ratio=0.01, mfu=0.139,
    )
    used += time.thread_time() - before
    time.sleep(max(began + (step + 1) * seconds / lines - time.monotonic(), 0))
journal.event("note", text=json.dumps({"used": used, "seconds": time.monotonic() - began}))
"""


@contextmanager
def server(home: Path) -> Iterator[str]:
    """A Prefect server with a database of its own; the address of its API."""
    import flows.environment  # noqa: F401  (first: Prefect reads its settings when it is imported)

    os.environ["PREFECT_HOME"] = str(home)
    os.environ.pop("PREFECT_API_URL", None)
    from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

    from flows.server import server_for_this_run

    changed = temporary_settings({PREFECT_HOME: home}, restore_defaults={PREFECT_API_URL})
    with changed, server_for_this_run() as api:
        yield api


def started(*arguments: str) -> Cost:
    return measure([sys.executable, *arguments])


def by_commands(recipe: str, root: Path) -> Cost:
    """Every stage of the chain by its own command."""
    costs = [started("-m", f"stages.{stage}", str(RECIPES / recipe), "--root", str(root)) for stage in CHAIN]
    return Cost(sum(cost.wall_seconds for cost in costs), sum(cost.cpu_seconds for cost in costs))


def hits_in_a_flow(recipe: str, root: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of each stage's hit, by stage: what `make` takes inside a flow, Prefect's part included."""
    from prefect import flow

    from flows.stage_task import Run, make
    from flows.terminal import ignore

    run, seconds = Run(load(RECIPES / recipe), root), dict[str, list[float]]()

    @flow(name="hits")
    async def hits() -> None:
        for _ in range(rounds):
            for stage in CHAIN:
                if stage == "compare":
                    continue  # it takes what the evaluation beside it found
                began = time.perf_counter()
                assert await make(stage, run, ignore)
                seconds.setdefault(stage, []).append(time.perf_counter() - began)

    asyncio.run(hits())
    return seconds


def talkative(lines: int, seconds: float, folder: Path) -> tuple[float, float]:
    """Of a stage that writes so many lines in so many seconds, under a flow: shares of that time that its own thread
    and the flow's process took."""
    from prefect import flow, task

    from flows.process import run_process
    from flows.showing.notify import Notifier
    from flows.stage_task import Run

    said: list[dict[str, float]] = []
    run = Run(load(RECIPES / "tiny.toml"), folder)

    @task(name="pretrain")
    async def stage() -> None:
        async with Notifier(run, "pretrain") as notifier:

            def on_event(event: dict[str, object]) -> None:
                notifier(event)
                if event["kind"] == "note":
                    said.append(json.loads(str(event["text"])))

            command = [sys.executable, "-c", CHILD, str(lines), str(seconds), str(folder)]
            await run_process("pretrain", command, on_event)

    @flow(name="talkative")
    async def flow_of_it() -> None:
        await stage()

    before = time.process_time()
    asyncio.run(flow_of_it())
    used = time.process_time() - before
    (found,) = said
    return found["used"] / found["seconds"], used / found["seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument(
        "--recipe", default="tiny.toml", help="of the pipeline that is run again; demo.toml takes longer"
    )
    parser.add_argument("--root", type=Path, help="a store in which that recipe has been made")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the talkative stage")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures, rows = benchmark(arguments, Path(folder))
    report("desk", ("what", "median", "low", "high"), rows, figures, PACKAGES)


def benchmark(arguments: argparse.Namespace, folder: Path) -> tuple[dict[str, object], list[list[object]]]:
    recipe, root = arguments.recipe, arguments.root or folder / "store"
    root.mkdir(exist_ok=True)
    (folder / "prefect").mkdir()
    os.environ["PREFECT_HOME"] = str(folder / "prefect")
    through_prefect(recipe, root)  # everything is there from here on
    cached = interleave(
        lambda: by_commands(recipe, root), lambda: through_prefect(recipe, root), pairs=arguments.pairs, warm_up=False
    )
    help_text = interleave(
        lambda: started("-c", "pass"), lambda: started("-m", "stages.plan", "--help"), pairs=arguments.pairs
    )
    plan = ("-m", "stages.plan", str(RECIPES / recipe), "--root", str(root))
    hit = interleave(lambda: started("-c", "pass"), lambda: started(*plan), pairs=arguments.pairs)
    with server(folder / "prefect"):
        stages = hits_in_a_flow(recipe, root, arguments.pairs)
        medians = {stage: statistics.median(seconds) for stage, seconds in stages.items()}
        lines = round(LINES_A_MINUTE * arguments.seconds / 60)
        stage_share, flow_share = talkative(lines, arguments.seconds, folder)
        locked = sum(path.read_text("utf-8", "replace").count("is locked") for path in folder.rglob("*server*.log"))
    walls = [cost.wall_seconds for cost in cached.b]
    figures: dict[str, object] = {
        "cached_pipeline_seconds": spread(walls),
        "cached_pipeline_to_commands_wall_ratio": cached.ratio("wall_seconds"),
        "hit_of_a_stage_seconds": spread(list(medians.values())),
        "plan_help_seconds": spread([cost.wall_seconds for cost in help_text.b]),
        "plan_hit_seconds": spread([cost.wall_seconds for cost in hit.b]),
        "plan_hit_to_bare_python_ratio": hit.ratio("wall_seconds"),
        "journal_thread_cpu_share": stage_share,
        "journal_flow_cpu_share": flow_share,
        "journal_lines": lines,
        "journal_database_is_locked": locked,
    }
    rows: list[list[object]] = [["cached pipeline", *spread(walls).values()]]
    rows += [[f"hit of {stage}", *spread(seconds).values()] for stage, seconds in stages.items()]
    return figures, rows


def spread(seconds: list[float]) -> dict[str, float]:
    return {"median": statistics.median(seconds), "low": min(seconds), "high": max(seconds)}


if __name__ == "__main__":
    main()
