"""View of all studies in the terminal."""

import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType

from paceline.command.plain_table import plain_table
from paceline.study.overview import Overview, overviews

_DAY = 86400


def studies_view(root: Path, now: float | None = None) -> Iterator[RenderableType]:
    """Yield a table with a row for each study."""
    found = overviews(root)
    rows = [_row(each, time.time() if now is None else now) for each in found]
    yield plain_table(["study", ">points", "state", ">newest", "best (of its situations)"], rows)
    yield "paceline show STUDY tells more of one"


def _row(overview: Overview, now: float) -> list[str]:
    age = "" if overview.newest is None else age_of(now - overview.newest)
    best = [f"{scheme} {count}" for scheme, count in overview.best.most_common(3)]
    total = sum(overview.best.values())
    return [
        overview.study,
        f"{overview.num_done} of {overview.num_points}",
        overview.state,
        age,
        f"{', '.join(best)} (of {total})" if best else "",
    ]


def age_of(seconds: float) -> str:
    """Format an age by its largest unit: `3 days`."""
    for size, unit in ((_DAY, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
