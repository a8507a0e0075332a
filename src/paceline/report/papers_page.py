"""Writes reports/papers: the ledger of the papers' claims, and a page for each paper."""

import csv
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from paceline.analysis.claim_tests import FEWEST, count, predictions, select, table_of
from paceline.analysis.claims import (
    PREDICTIONS,
    TESTS,
    WORKLOADS,
    Beside,
    Claim,
    Paper,
    Published,
    read_papers,
)
from paceline.analysis.frames import Row
from paceline.analysis.intervals import interval
from paceline.analysis.ledger import (
    DECIDED,
    JUDGED,
    MEANINGS,
    OPEN,
    TONES,
    ledger,
    published_number,
)
from paceline.analysis.statistics.means import LEVEL, POSITIVE
from paceline.analysis.tables import require_records
from paceline.errors import SettingError
from paceline.record.numbers import NUMBERS, Unit
from paceline.record.record import write_rows
from paceline.record.tied_files import SUMS, replaced, write_sums
from paceline.report.chart.chart_style import Chart, chart, short, static_svg
from paceline.report.front_page import PAPERS
from paceline.report.number_format import form_of, general, percent, shown, signed_percent
from paceline.report.page import render
from paceline.report.words import scheme_name, value_words

COMMAND = "paceline report papers"
LEDGER = "ledger.csv"
NO_RUNS = ("", PREDICTIONS, TESTS, WORKLOADS)  # as studies of claims
_OVER = {"equal": "less", "differ": "less", "ratio": "over"}  # what a test does with two sides
_UNITS: dict[str, Unit] = {each.name: each.unit for each in NUMBERS}
_UNITS["target_seconds"] = "s"
_READ = "digitised, +-"  # note of a number that was read from a figure, before its error
_COLUMNS = (
    *("paper", "doi", "claim", "says", "verdict", "why", "kind", "test", "theirs", "ours"),
    *("as_run", "value", "low", "high", "n", "claimed_low", "claimed_high", "ours_over_theirs"),
    *("p", "power", "smallest", "lost", "diverged", "registered", "margin_later", "study"),
    *("started", "commit", "command", "minutes"),
)
_PUBLIC = ("claim", "says", "verdict", "kind", "theirs", "ours", "why", "commit", "command")


def write_papers(root: Path, reports: Path | None = None, judged: Path | None = None) -> Path:
    """Write the pages and the ledger into `reports`/papers; return the path of index.html.

    `judged`: project whose runs are judged; by default `root`, with the claims. `reports`: by
    default the reports of that project. Equal claims and tables result in files of equal bytes.
    Raises SettingError for a claim that is not valid, or for a table that was changed.
    """
    judged = judged or root
    folder = (reports or judged / "reports") / PAPERS
    papers, published, rows = read_papers(root), Published(root), ledger(root, judged)
    claims = {claim.id: claim for paper in papers for claim in paper.claims}
    for row in rows:
        claim = claims[row["claim"]]
        row |= {"tone": TONES.get(row["verdict"], OPEN), "later": ""}
        row |= {"power_text": _power(row), "means_text": "; ".join(_means(claim, row))}
        pages = (f"{claim.study}/{name}" for name in ("index.html", "README.md") if claim.study)
        row["page"] = next(filter(lambda page: (judged / "reports" / page).is_file(), pages), "")
        if row["ours"] and row["margin_later"]:
            told = "is" if row.get("started") else "may be"
            row["later"] = f"test or margin {told} later than data"
        if row["ours"] and claim.test in _OVER:
            of = f"{claim.of.replace('_', ' ')} of " if claim.test == "ratio" else ""
            row["ours"] += f"; {of}{f' {_OVER[claim.test]} '.join(_names(claim, ()))}"
    of_paper = {paper.id: [row for row in rows if row["paper"] == paper.id] for paper in papers}
    predicted = predictions(judged)
    common: Row = {"papers": papers, "rows": rows, "of_paper": of_paper, "tones": TONES}
    common |= {"says": f"{extent(rows)} {chance(rows)}", "counts": _counts(rows)}
    common |= {"meanings": MEANINGS, "tables": [], "figures": [], "paper": None}
    with replaced(folder) as new:
        cells = [{name: _cell(row.get(name)) for name in _COLUMNS} for row in rows]
        write_rows(new / LEDGER, _COLUMNS, cells)
        (new / "ledger.json").write_text(_public(papers, of_paper))
        (new / "index.html").write_text(render("papers.html.j2", common))
        (new / "README.md").write_text(render("papers.md.j2", common))
        (new / "figures").mkdir()
        for paper in papers:
            figures = _figures(paper, published, judged)
            for drawn, _ in figures:
                (new / f"figures/{drawn.name}.svg").write_text(static_svg(drawn))
            own = {"paper": paper, "rows": of_paper[paper.id], "figures": figures}
            own |= {"counts": _counts(own["rows"])}
            own |= {"tables": _tables(paper, published, predicted, root)}
            (new / f"{paper.id}.html").write_text(render("papers.html.j2", common | own))
        made = [path for path in sorted(new.rglob("*")) if path.is_file()]
        write_sums(new / SUMS, {str(path.relative_to(new)): path for path in made})
    return folder / "index.html"


def verify_papers(root: Path) -> int:
    """Derive the ledger and its pages anew; return how many claims it has.

    Raises SettingError, which names the claim or the file, if reports/papers differs from what the
    claims and the tables result in, or if a table of runs differs from its records.
    """
    for study in {claim.study for paper in read_papers(root) for claim in paper.claims}:
        require_records(root / "reports" / study)
    with TemporaryDirectory() as name:
        made = write_papers(root, Path(name)).parent
        return require_same(made, root / "reports" / PAPERS)


def require_same(made: Path, found: Path) -> int:
    """Return the number of claims; raise SettingError unless pages `found` equal those `made`."""
    ours, theirs = _read(made / LEDGER), _read(found / LEDGER)
    for claim in dict.fromkeys([*ours, *theirs]):
        own, other = ours.get(claim, {}), theirs.get(claim, {})
        for column in _COLUMNS:
            if own.get(column) != other.get(column):
                what = f"{column} is {other.get(column)!r}, and {own.get(column)!r} by its test"
                raise SettingError(f"claims.{claim}", f"{found / LEDGER}: {what}")
    names = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    for name in sorted(names):
        path = found / name
        if not path.is_file() or path.read_bytes() != (made / name).read_bytes():
            message = f"{path} is not what the claims result in; run: {COMMAND}"
            raise SettingError("papers", message)
    return len(ours)


def extent(rows: Sequence[Row]) -> str:
    """Say how many claims runs decide, and how many they do not decide."""
    of_runs = [row for row in rows if row["verdict"] in JUDGED and row["study"] not in NO_RUNS]
    judged = sum(row["verdict"] in DECIDED for row in of_runs)
    return f"Runs decide {judged} of {len(rows)} claims, and do not decide {len(of_runs) - judged}."


def chance(rows: Sequence[Row]) -> str:
    """Say how many tests were made, and how many would succeed by chance."""
    made = [row for row in rows if row["verdict"] in JUDGED and (row.get("n") or 0) >= FEWEST]
    expected = (1 - LEVEL) * len(made)
    return (
        f"{len(made)} of {len(rows)} claims are tested with intervals. Were all of them false, "
        f"at most {expected:.2f} would be expected to pass by chance: each test errs in at "
        f"most {percent(1 - LEVEL, 0)} of cases."
    )


def _names(claim: Claim, along: Sequence[float]) -> list[str]:
    """Name the groups of a test by the settings in which they differ, as in "64 workers"."""
    places = [{claim.along: place} for place in along] if claim.along else []
    groups = claim.steps or places or [claim.left, claim.right]
    words = [
        [
            scheme_name(str(value)) if name == "scheme" else value_words(name, value)
            for name, value in each.items()
            if any(other.get(name) != value for other in groups)
        ]
        for each in groups
    ]
    return [", ".join(filter(None, own)) for own in words]


def _means(claim: Claim, row: Row) -> list[str]:
    """Say the mean of each group of runs, as in "64 workers: 86.7 %"."""
    if claim.test in ("exact", "count") or not np.isfinite(row.get("means", math.nan)).any():
        return []
    unit: Unit = _UNITS.get(claim.of, "")
    form, after = form_of(unit), "" if unit in ("share", "") else f" {unit}"
    groups = zip(_names(claim, row["along"]), row["means"], strict=True)
    return [f"{name}: {shown(mean, form)}{after}" for name, mean in groups]


def _power(row: Row) -> str:
    """Say how likely a test finds a true claim, or how large an effect must be to be found."""
    if math.isfinite(row.get("power", math.nan)):
        text = f"{percent(row['power'], 0)} to find the claim, if it is exactly true"
        return text if row["power"] >= 0.005 else f"{text}: this study could not have shown it"
    if not math.isfinite(row.get("smallest", math.nan)):
        return ""
    is_ratio = row["test"] == "ratio"
    text = f"a factor of {math.exp(row['smallest']):.3g}" if is_ratio else row["smallest_text"]
    return f"an effect of {text} would be found four times of five"


def _counts(rows: Sequence[Row]) -> list[Row]:
    found = Counter(row["verdict"] for row in rows)
    return [
        {"verdict": word, "number": found[word], "tone": TONES.get(word, OPEN), "means": means}
        for word, means in MEANINGS.items()
        if found[word]
    ]


def _cell(value: Any) -> str:
    """Return a cell of the ledger as text; infinite and unknown numbers are empty."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _public(papers: Sequence[Paper], of_paper: Mapping[str, Sequence[Row]]) -> str:
    """Return the ledger for programs: a list of papers with their DOI, each with its claims."""
    made = [
        {
            "paper": paper.paper,
            "doi": paper.doi,
            "claims": [
                {name: row.get(name, "") for name in _PUBLIC}
                | {"margin_later_than_data": row["margin_later"]}
                for row in of_paper[paper.id]
            ],
        }
        for paper in papers
    ]
    return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _read(path: Path) -> dict[str, Row]:
    if not path.is_file():
        raise SettingError("papers", f"there is no {path}; first: {COMMAND}")
    with path.open(newline="") as file:
        return {row["claim"]: row for row in csv.DictReader(file)}


def _tables(paper: Paper, published: Published, known: Mapping[str, Row], root: Path) -> list[Row]:
    """Return the paper's tables: for each line of one, its numbers with ours beside, by metric."""
    made = list[Row]()
    for experiment, caption in paper.tables.items():
        lines = dict[str, Row]()
        for name, row in published.rows.items():
            if (row["paper"], row["experiment"]) == (paper.rows, experiment):
                where = [row["model"], row["scheme"], row["gpus"] and f"{row['gpus']} GPUs"]
                where += [row["batch_size"] and f"batch {row['batch_size']}"]
                line = lines.setdefault(", ".join(filter(None, where)), {})
                line[row["metric"].replace("_", " ")] = _with_ours(row, known.get(name), root)
        metrics = list(dict.fromkeys(metric for line in lines.values() for metric in line))
        made.append({"name": caption, "metrics": metrics, "lines": lines})
    return made


def _with_ours(row: Mapping[str, str], predicted: Row | None, root: Path) -> Row:
    """Return a published number in words, with what we predict or count beside."""
    theirs, ours, error = published_number(row), "", ""
    if predicted is not None:
        number = {**predicted, "value": f"{predicted['predicted']:.3g}"}
        kind = "calibrated" if predicted["verdict"] == "calibrated" else "predicted"
        ours = f"{published_number(number)}, {kind}"
        error = f", {signed_percent(float(predicted['error']))}"
    elif (found := count(row, root)) is not None:
        is_test = row["metric"] != "data_size_per_batch"  # whose rule of counting is fitted
        text = general(found) if found < 1000 else f"{found:,.0f}"
        ours = (
            f"{published_number({**row, 'value': text})}, {'counted' if is_test else 'calibrated'}"
        )
        error = f", {100 * (found / float(row['value']) - 1):+.1f} %"
    if row["note"].startswith(_READ):
        off = float(row["note"].removeprefix(_READ))
        theirs += f" ± {off:g}"
        error = "" if off > float(row["value"]) / 4 else error
    if row["metric"] == "speedup" and row["gpus"] not in ("", "1"):
        theirs += f" ({percent(float(row['value']) / int(row['gpus']), 0)} of linear)"
    wrong = row["note"] if row["note"].startswith("contradicts") else ""
    theirs += "" if row["verified"] == "yes" else " (from memory)"
    return {"theirs": theirs, "contradicted": wrong, "ours": ours + error}


def _figures(paper: Paper, published: Published, root: Path) -> list[tuple[Chart, list[Row]]]:
    """Return the paper's figures, redrawn with our runs beside, each with its rows."""
    made = []
    for number, each in enumerate(paper.figures, 1):
        rows = _beside(paper, each, published, root)
        series = list(dict.fromkeys(row["scheme"] for row in rows))
        drawn = chart("beside", rows, title=each.title, caption=each.caption, series=series)
        if drawn is not None:
            table = [row for row in rows if row["whose"] == "theirs"]
            ours = {row["id"]: row for row in rows if row["whose"] == "ours"}
            table = [row | {"ours": ours.get(row["id"])} for row in table]
            named = Chart(f"{paper.id}-{number}", drawn.title, drawn.caption, drawn.spec, rows)
            made.append((named, table))
    return made


def _beside(paper: Paper, figure: Beside, published: Published, root: Path) -> list[Row]:
    """Return a row for each of their numbers, and one for ours if the study has such runs."""
    runs, fixed, *_ = table_of(figure.study, root) or (None, {})
    means, tops = dict[str, Any](), dict[str, str]()
    for name, selection in figure.runs.items():
        if runs is not None and selection is not None:
            own = select(paper.id, runs, figure.where | selection, fixed)
            own = own[own["status"] == "finished"]
            values = 1 / own[figure.of] if figure.inverse else own[figure.of]
            if len(own):
                means[name] = interval(values.astype(float), POSITIVE)
                tops[name] = percent(own[figure.top1].mean()) if figure.top1 else ""
    first = published.row(figure.relative_to, paper.id)
    base = means.get(figure.relative_to)
    rows: list[Row] = []
    for name in figure.runs:
        row = published.row(name, paper.id)
        theirs = float(row["value"]) / float(first["value"])
        theirs = 1 / theirs if figure.inverse_of_theirs else theirs
        gpus = row["gpus"] or (figure.runs[name] or {}).get("workers")
        known = {"id": name, "scheme": row["scheme"].partition(" (")[0], "gpus": int(str(gpus))}
        known |= {"low": None, "high": None, "from_memory": row["verified"] != "yes"}
        rows.append(known | {"whose": "theirs", "relative": short(theirs)})
        if name in means and base is not None:
            found = means[name]
            ends = {end: short(getattr(found, end) / base.mean) for end in ("low", "high")}
            if name == figure.relative_to or found.high - found.low < found.mean / 1000:
                ends = {}  # of a number over itself, and of modelled times
            ours = {"whose": "ours", "relative": short(found.mean / base.mean), "n": found.n}
            rows.append(known | ours | ends | {"top1": tops[name]})
    return rows
