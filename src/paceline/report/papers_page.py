"""Writes reports/papers: a page in Markdown and a table of the verdicts on papers' claims."""

import csv
from collections import Counter
from pathlib import Path

from paceline.analysis.claims import read_claims
from paceline.analysis.frames import Row
from paceline.analysis.ledger import ledger
from paceline.errors import SettingError
from paceline.record.record import write_rows
from paceline.record.report_files import replaced
from paceline.report.front_page import PAGE
from paceline.report.render import render

COMMAND = "paceline report papers"
VERDICTS = "verdicts.csv"


def write_papers(root: Path) -> Path:
    """Write the verdicts and their page into reports/papers; return the path of the page.

    Equal claims and tables result in files of equal bytes.
    """
    rows, claims = ledger(root), read_claims(root)
    papers = {name: _paper(root, name) for name in dict.fromkeys(each.paper for each in claims)}
    lines = [
        {"claim": claim, "row": row, "paper": papers[claim.paper]["name"]}
        for claim, row in zip(claims, rows, strict=True)
    ]
    counts = Counter(row["verdict"] for row in rows)
    folder = root / "reports/papers"
    with replaced(folder) as new:
        write_rows(new / VERDICTS, list(rows[0]), rows)
        content = {"papers": [*papers.values()], "counts": counts, "lines": lines}
        (new / PAGE).write_text(render("papers.md.j2", content))
    return folder / PAGE


def _paper(root: Path, name: str) -> Row:
    """Return the text of papers/`name`.md, and apart from it what of the paper is not tested."""
    text, _, untested = (root / f"papers/{name}.md").read_text().strip().partition("Not tested: ")
    return {"name": f"{name[:-4].capitalize()} {name[-4:]}", "text": text, "untested": untested}


def verify_papers(root: Path) -> int:
    """Test all claims anew; return how many there are.

    Raises SettingError, which names the claim, if reports/papers has another verdict or number.
    """
    path = root / "reports/papers" / VERDICTS
    if not path.is_file():
        raise SettingError("papers", f"there is no {path}; first: {COMMAND}")
    with path.open(newline="") as file:
        committed = {row["claim"]: row for row in csv.DictReader(file)}
    found = {row["claim"]: {name: str(each) for name, each in row.items()} for row in ledger(root)}
    for claim in {**found, **committed}:
        own, other = found.get(claim, {}), committed.get(claim, {})
        for name in (name for name in {**own, **other} if own.get(name) != other.get(name)):
            what = f"{name} is {other.get(name)!r}, and {own.get(name)!r} by its runs"
            raise SettingError(f"claims.{claim}", f"{path}: {what}; run: {COMMAND}")
    return len(found)
