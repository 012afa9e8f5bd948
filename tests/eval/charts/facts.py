"""Facts of an evaluation and of a comparison as their stages tell them, small; a name and a text hold what must not
become Markdown or markup."""

from typing import Any

NASTY = "<script>alert(1)</script> | [x](javascript:y) `$a$`"


def task(value: float, axis: str = "capability", **more: Any) -> dict[str, Any]:
    return {
        "suite": "core",
        "axis": axis,
        "metric": "acc",
        "source": "template",
        "higher_is_better": True,
        "alert_threshold": 0.02,
        "value": value,
        "standard_error": 0.05,
        "low": value - 0.1,
        "high": value + 0.1,
        "num_items": 60,
        "num_clusters": 20,
        "chance": 0.5,
        "shots": 0,
        "version": 1,
        "description": "what is asked",
        "moves_at": "",
        **more,
    }


def evaluation() -> dict[str, Any]:
    drop = {"value": 0.2, "low": 0.05, "high": 0.35, "standard_error": 0.1}
    groups = {"a": {"value": 0.5, "clean": 0.8, "num_items": 7}, "b": {"value": 0.7}}
    return {
        "model": {"stage": "checkpoint", "key": "0123456789ab", "step": 1200, "tokens_seen": 2_400_000, "form": "",
                  "start_token": "always"},
        "bits_per_byte": {NASTY: {"value": 2.0, "low": 1.9, "high": 2.1, "num_bytes": 9, "num_documents": 2}},
        "baselines": {NASTY: {"gzip-9": 2.5}},
        "tasks": {
            NASTY: task(0.8, bigram={"value": 0.6, "standard_error": 0.1}),
            "typos": task(
                0.6, "long_tail", clean=0.8, drop=drop, worst_group={"group": "a", "value": 0.5}, groups=groups
            ),
            "one cluster": task(
                0.25, "safety", low=None, high=None, chance=None, higher_is_better=False,
                worst_group={"group": "email", "value": 0.5},
            ),
        },
        "skipped_tasks": {"refusal": NASTY},
    }  # fmt: skip


MEASUREMENTS = {
    "tasks": {
        "token_latency_p99": task(
            3.0, "efficiency", metric="log2_time", higher_is_better=False, chance=None, milliseconds_p50=8.0,
            milliseconds_p99=21.25,
        ),
        "throughput": task(
            1.0, "efficiency", metric="log2_time", chance=None, tokens_per_second={"batch of 1": 85, "batch of 8": 505}
        ),
    }
}  # fmt: skip


def difference(value: float, verdict: str, **more: Any) -> dict[str, Any]:
    return {
        "suite": "core",
        "axis": "capability",
        "metric": "acc",
        "higher_is_better": True,
        "alert_threshold": 0.02,
        "verdict": verdict,
        "candidate": 0.7 + value,
        "baseline": 0.7,
        "difference": value,
        "low": value - 0.05,
        "high": value + 0.05,
        "p_value": 0.001,
        "p_corrected": 0.004,
        "minimal_detectable_difference": 0.07,
        "num_items": 9,
        "num_unpaired": 0,
        "num_clusters": 3,
        "num_worsened": 2,
        "num_improved": 1,
        "method": "sign test over clusters",
        **more,
    }


def comparison(**more: Any) -> dict[str, Any]:
    model = {"stage": "checkpoint", "model": "0123456789ab", "step": 1200, "tokens_seen": 2_400_000}
    return {
        "candidate": {"key": "a" * 12, **model},
        "baseline": {"kind": "baseline", "name": "main", "serial": 3, "key": "b" * 12, **model},
        "level": 0.01,
        "verdict": "regressed",
        "regressed": [NASTY],
        "improved": ["c"],
        "tasks": {
            "same": difference(0.01, "no_difference", low=None, high=None, minimal_detectable_difference=None),
            NASTY: difference(-0.2, "regressed"),
            "bits": difference(-0.1, "improved", metric="bits_per_byte", higher_is_better=False),
        },
        "not_compared": {"old": NASTY},
        "missing": {"gone": "the candidate was not asked it"},
        **more,
    }


def flip(number: int, task: str = NASTY) -> dict[str, Any]:
    return {
        "task": task, "suite": "core", "item": number, "cluster": "c", "group": "", "direction": "worsened",
        "candidate_score": 0.0, "baseline_score": 1.0, "weight": 1.0, "gold": 0, "candidate_predicted": 1,
        "baseline_predicted": 0, "candidate_evidence": NASTY, "baseline_evidence": "x" * 500,
    }  # fmt: skip
