"""Writes predictions of published numbers: a table with every row, and a page with their errors."""

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from paceline.prediction.published import Judged, entries, judge, published_rows

DRAWS = 20
FAR = 0.25  # an error beyond which the page explains

_TEXT = """\
# Published numbers, predicted

By `paceline published`: modelled time on the profiles in [conf/cluster](../../conf/cluster), and
nothing trained. Naive is N times one accelerator. A number is judged if it is verified, no rate and
no link was fitted to it, its source states the settings, and no other number of the same runs is
judged. Draws are of what the profiles assume ({draws} for each line; 90 % of
them are between the two numbers; a baseline keeps its values). The prediction takes the profile's
own values, which can be an end of a range (a nominal bandwidth; a step that was timed at one batch
size only, taken as proportional to the batch): it can lie outside. Settings and inputs of each line
are in [predictions.csv](predictions.csv), sources in [published.csv](../../papers/published.csv).

{summary}

| published | value | predicted | 90 % of draws | error | naive error | |
|---|---:|---:|---:|---:|---:|---|
{lines}

## Errors beyond {far}

{explanations}
"""


def write(root: Path) -> Path:
    """Predict every entry, write reports/predictions and return the path of its page."""
    folder = root / "reports/predictions"
    folder.mkdir(parents=True, exist_ok=True)
    known = published_rows(root)
    found = [judge(entry, known, root, DRAWS) for entry in entries(root)]
    with (folder / "predictions.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(_row(found[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(_row, found))
    page = folder / "README.md"
    page.write_text(
        _TEXT.format(
            summary=summary(found),
            lines="\n".join(map(_line, found)),
            draws=DRAWS,
            far=_percent(FAR),
            explanations="\n".join(_explanations(found)),
        )
    )
    return page


def summary(found: Sequence[Judged]) -> str:
    """Return the errors of the judged predictions in a sentence or two.

    Skill: 1 - the median error over that of N times one accelerator, on the same numbers.
    """
    judged = [each for each in found if each.verdict == "judged"]
    if not judged:
        return "None is judged."
    errors = sorted(abs(each.error) for each in judged)
    return (
        f"**{len(judged)} judged: median error {_percent(median(errors))}, worst "
        f"{_percent(errors[-1])}; {sum(e <= 0.1 for e in errors)} within 10 %, "
        f"{sum(e <= 0.25 for e in errors)} within 25 %.**" + _skill(judged) + _covered(judged)
    )


def _skill(judged: Sequence[Judged]) -> str:
    both = [(abs(j.error), abs(j.naive_error)) for j in judged if j.naive_error is not None]
    if not both:
        return ""
    ours, naive = (median(side) for side in zip(*both, strict=True))
    return (
        f" Of {len(both)} that N times one accelerator predicts, too, the median error is "
        f"{_percent(ours)} against {_percent(naive)}: skill {1 - ours / naive:.2f}."
    )


def _covered(judged: Sequence[Judged]) -> str:
    drawn = [(each.interval, each.target) for each in judged if each.interval]
    inside = sum(low <= target <= high for (low, high), target in drawn)
    return f" {inside} of {len(drawn)} are inside of 90 % of the draws." if drawn else ""


def _explanations(found: Sequence[Judged]) -> list[str]:
    """Return a line for each explanation, with the errors that it is of."""
    errors: dict[str, list[float]] = {}
    for each in found:
        if abs(each.error) > FAR:
            errors.setdefault(each.entry.error_from or "Not explained.", []).append(each.error)
    return [
        f"- {', '.join(f'{100 * error:+.0f} %' for error in those)}: {text}"
        for text, those in errors.items()
    ]


def _row(judged: Judged) -> dict[str, object]:
    return {
        "row": judged.entry.row,
        "kind": "predicted",
        "unit": judged.published["unit"],
        "published": judged.target,
        "predicted": f"{judged.predicted:.6g}",
        "low": f"{judged.interval[0]:.6g}" if judged.interval else "",
        "high": f"{judged.interval[1]:.6g}" if judged.interval else "",
        "error": f"{judged.error:.4f}",
        "naive": "" if judged.naive is None else f"{judged.naive:.6g}",
        "naive_error": "" if judged.naive_error is None else f"{judged.naive_error:.4f}",
        "verdict": judged.verdict,
        "settings": " ".join(judged.entry.settings),
        "baseline": " ".join(judged.entry.baseline or ()),
        "assumed": judged.entry.assumed,
        "inputs": " ".join(judged.rows),
    }


def _line(judged: Judged) -> str:
    row, naive = judged.published, judged.naive_error
    where = f"{row['model']}, {row['scheme']}, {row['gpus']} GPUs"
    size = f", batch {row['batch_size']}" if row["batch_size"] else ""
    cells = (
        f"{row['paper'].split('_', 1)[1]}: {where}{size}: {row['metric'].replace('_', ' ')}",
        f"{judged.target:g} {row['unit']}",
        _number(judged.predicted),
        " to ".join(map(_number, judged.interval or ())),
        f"{100 * judged.error:+.0f} %",
        "-" if naive is None else f"{100 * naive:+.0f} %",
        judged.verdict,
    )
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
