"""The items of a task, wherever they come from."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from eval.results import Skipped
from eval.tasks.heldout import heldout_items
from eval.tasks.items import Item
from eval.tasks.templates import template_items

if TYPE_CHECKING:
    from eval.suites import TaskDefinition


def make_items(task: "TaskDefinition", heldout: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[Item, ...]:
    """The items of a task whose source is `template` or `heldout`. heldout: domain -> (id, text) of held-out documents.

    Raises Skipped if the held-out text gives no item.
    """
    if task.source == "template":
        return template_items(task.made_by, seed=task.seed, limit=task.limit)
    assert task.source == "heldout", task.source
    items = heldout_items(task.made_by, heldout, seed=task.seed, limit=task.limit)
    if not items:
        raise Skipped("the held-out text holds nothing to make an item of")
    return items
