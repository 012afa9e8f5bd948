"""A stage that picks an input itself, and one that takes what is there."""

import pytest

from stages.base import Chosen, Facts, Many, One, Stage, execute
from stages.config import StageConfig, runtime
from stages.resolve import MissingInput, Resolver
from stages.store import Store


class Config(StageConfig):
    picks: bool = runtime(False)


def run(config, inputs, out, journal):
    return Facts(facts={})


def pick(config, store, before):
    return before["a"][0] if config.picks else None


def stage(name, **inputs):
    return Stage(name=name, revision=1, config=Config, inputs=inputs, run=run)


STAGES = {
    made.name: made
    for made in (
        stage("source"),
        stage("picky", a=One("source"), b=Chosen("source", "other", by=pick)),
        stage("page", found=Many("picky", optional=True)),
    )
}


class Recipe:
    name = "made"

    def __init__(self, picks):
        self.picks = picks

    def config_for(self, name):
        return Config(picks=self.picks)


def test_what_picks_nothing_has_no_job_and_is_left_out_downstream(tmp_path):
    store = Store(tmp_path)
    without, picking = (Resolver(Recipe(picks), store, STAGES) for picks in (False, True))
    with pytest.raises(MissingInput):
        without.jobs("picky")
    source = execute(without.job("source"), store)
    assert without.jobs("picky") == []
    with pytest.raises(MissingInput, match="name its inputs with --input"):
        without.job("picky")
    assert without.job("page").inputs["found"] == ()
    assert without.job("picky", b=source).inputs["b"] == (source,)

    (job,) = picking.jobs("picky")
    assert (job.inputs["a"], job.inputs["b"]) == ((source,), (source,))
    assert picking.job("page").inputs["found"] == (), "what has not been made is not waited for"
    made = execute(job, store)
    assert [found.key for found in picking.job("page").inputs["found"]] == [made.key]
    assert picking.order("page") == ["source", "picky", "page"]
