import pytest

from tests.stages.pretrain import micro


def test_what_belongs_to_a_durable_store_is_refused_without_one() -> None:
    with pytest.raises(ValueError, match=r"pretrain.durable_wait_seconds has no effect without pretrain.durable_url"):
        micro.config(durable_wait_seconds=5)
    assert micro.config(durable_wait_seconds=5, durable_url="memory://x").durable_wait_seconds == 5


@pytest.mark.parametrize("url", ["backups", "file://backups", "../backups", "~/backups"])
def test_a_folder_that_depends_on_where_the_command_is_run_from_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="pretrain.durable_url = .* is a relative path"):
        micro.config(durable_url=url)
    assert micro.config(durable_url="/backups").durable_url == "/backups"


def test_where_checkpoints_go_and_which_stay_is_no_part_of_what_a_training_is() -> None:
    from stages.fingerprint import identity

    changes = {"durable_url": "s3://bucket/x", "keep_every": 3, "keep_local": 9, "failures_per_day": 7}
    assert identity(micro.config(**changes)) == identity(micro.config())
