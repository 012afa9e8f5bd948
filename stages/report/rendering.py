"""How values become a page: templates that escape whatever comes from data, and numbers with their units."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent


def environment(*folders: Path) -> "Environment":
    """Of the templates in `folders`, the first that has a name. A name that a template does not know is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": count,
        "figure": figure,
        "size": size,
        "seconds": seconds,
        "milliseconds": milliseconds,
        "percent": percent,
        "share": share,
        "ratio": ratio,
    }
    return made


def count(value: float | None) -> str:
    """12,345; what was not measured is a dash."""
    return "–" if value is None else f"{value:,.0f}"


def size(num_bytes: float | None) -> str:
    """Bytes in decimal units."""
    if num_bytes is None:
        return "–"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(num_bytes) >= factor:
            return f"{num_bytes / factor:.2f} {unit}"
    return f"{num_bytes:.0f} B"


def seconds(value: float | None) -> str:
    """3.2 s, or 1 h 02 min."""
    if value is None:
        return "–"
    if value < 120:
        return f"{value:.1f} s"
    minutes = round(value / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def milliseconds(value: float) -> str:
    """For what should be short: 12 ms, or as `seconds` does."""
    return f"{1000 * value:.0f} ms" if value < 1 else seconds(value)


def percent(share: float | None) -> str:
    """A signed share in percent."""
    return "–" if share is None else f"{share:+.2%}"


def share(value: float) -> str:
    """A share in percent."""
    return f"{value:.2%}"


def ratio(value: float | None) -> str:
    """A number that is not a count; what was not measured is a dash."""
    return "–" if value is None else f"{value:.2f}"


def figure(value: float | None) -> str:
    """A score, whatever its unit: 0.512, 12.3, 1,230; what there is none of is a dash."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
