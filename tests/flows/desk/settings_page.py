"""Write the settings in docs/desk.md from their class: `python -m tests.flows.desk.settings_page`."""

import json
from pathlib import Path

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from flows.desk.settings import BlockSettings, DeskSettings
from stages.config import StageConfig

PAGE = Path(__file__).parents[3] / "docs" / "desk.md"
MARK = "<!-- The tables are written by `python -m tests.flows.desk.settings_page`. -->\n"
SIGNS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def tables() -> str:
    """One for the desk, one for a block."""
    return f"\n{_table(DeskSettings)}\nOf each `[[blocks]]`:\n\n{_table(BlockSettings)}"


def _table(settings: type[StageConfig]) -> str:
    lines = ["| setting | default | what it is |", "|---|---|---|"]
    for name, field in settings.model_fields.items():
        default = "" if field.is_required() else f"`{_toml(field.default)}`"
        what = "; ".join(part for part in (field.description, _bounds(field)) if part)
        lines.append(f"| `{name}` | {default} | {what.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return json.dumps(value)  # of texts, numbers, lists and empty tables, TOML says the same


def _bounds(field: FieldInfo) -> str:
    found = (
        f"{sign} {getattr(bound, name):g}"
        for bound in field.metadata
        for kind, (sign, name) in SIGNS.items()
        if isinstance(bound, kind)
    )
    return " and ".join(found)


def written() -> str:
    """The page with its tables as they should be."""
    prose, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    assert mark, f"{PAGE} has lost its mark"
    return prose + mark + tables()


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")
    print(PAGE)
