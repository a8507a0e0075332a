"""View of all studies in the terminal."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import RenderableType

from paceline.command.plain_table import plain_table
from paceline.errors import SettingError
from paceline.report.answer import answers
from paceline.report.findings import read_findings
from paceline.study.overview import Overview, overviews

_DAY = 86400
_HEADINGS = ["study", ">points", "state", ">of other code", ">newest", "use (of its situations)"]


def studies_view(root: Path, now: float | None = None) -> Iterator[RenderableType]:
    """Yield a table with a row for each study."""
    now = time.time() if now is None else now
    rows = [_row(each, root / "reports" / each.study, now) for each in overviews(root)]
    yield plain_table(_HEADINGS, rows)
    yield "paceline show STUDY tells more of one"


def _row(overview: Overview, report: Path, now: float) -> list[str]:
    return [
        overview.study,
        f"{overview.num_done} of {overview.num_points}",
        overview.state,
        str(overview.num_other_code or ""),
        "" if overview.newest is None else age_of(now - overview.newest),
        _uses(report),
    ]


def _uses(report: Path) -> str:
    """Count what the page says to use: `all-reduce 3, one worker 1 (of 5)`."""
    try:
        uses = [answer.use for answer in answers(read_findings(report))]
    except SettingError:  # it is not analysed
        return ""
    named = [f"{use} {count}" for use, count in Counter(filter(None, uses)).most_common(3)]
    return f"{', '.join(named)} (of {len(uses)})" if named else ""


def age_of(seconds: float) -> str:
    """Format an age by its largest unit: `3 days`."""
    for size, unit in ((_DAY, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
