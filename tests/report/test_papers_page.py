"""The page of the papers' claims, and a verdict that no run results in."""

import csv
import shutil
from argparse import Namespace
from pathlib import Path

import pytest

from paceline.cli import command
from paceline.errors import SettingError
from paceline.report.papers_page import verify_papers, write_papers
from tests.made_reports import write_rows

ROOT = Path(__file__).parents[2]
VERDICTS = "reports/papers/verdicts.csv"


@pytest.fixture
def root(tmp_path):
    """Claims whose studies are not there, but for one."""
    for name in ("papers", "conf/workload", "reports/five_ways", "reports/predictions"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    return tmp_path


def rows_of(root):
    return [*csv.DictReader((root / VERDICTS).read_text().splitlines())]


def test_the_page_has_each_claim_and_each_paper(root):
    page = write_papers(root)
    text = page.read_text()
    rows = rows_of(root)
    verdicts = [row["verdict"] for row in rows]
    signs = {"holds": "✓", "does not hold": "✗", "open": "?"}
    decided, _, others = text.partition("## Open")
    for verdict, sign in signs.items():
        side = others if verdict == "open" else decided
        assert side.count(f"\n- **{sign} ") == verdicts.count(verdict)
    assert text.partition("<summary>What nothing here can test")[2].count("2013**: ") == 1
    assert "Not tested" not in text
    assert "Its runs were not made yet: paceline sweep exchange." in text
    assert sorted(path.name for path in page.parent.iterdir()) == ["README.md", "verdicts.csv"]


def test_a_verdict_that_no_run_results_in_is_refused(root, capsys):
    options = {"study": "papers", "check": False, "single": None, "verify": True}
    with pytest.raises(SettingError, match="first: paceline report papers"):
        verify_papers(root)
    write_papers(root)
    assert command("report").run(Namespace(**options), root) == 0
    rows = rows_of(root)
    assert capsys.readouterr().out.startswith(f"{len(rows)} claims")
    for forged, told in (
        ([rows[0] | {"verdict": "holds"}, *rows[1:]], "verdict is 'holds', and 'open' by its runs"),
        (rows[1:], "is None, and"),
        ([*rows, rows[0] | {"claim": "made-up"}], r"claims\.made-up: .* and None"),
    ):
        write_rows(root / VERDICTS, list(rows[0]), forged)
        with pytest.raises(SettingError, match=told):
            verify_papers(root)
    with pytest.raises(SettingError, match=r"^verify: "):
        command("report").run(Namespace(**options | {"study": "five_ways"}), root)


def test_the_committed_verdicts_are_those_of_the_committed_runs():
    """A verdict that is lost or won is to be told."""
    assert verify_papers(ROOT) == 25
    rows = rows_of(ROOT)
    holds = (
        "firecaffe-table1 kumar-memory-helps kumar-multicolor-helps"
        " kumar-memory-removes-stalls kumar-partition-keeps-accuracy yadan-hybrid-2.2x-paced"
        " yadan-same-updates yadan-hybrid-best-of-four zou-batch-in-the-middle zou-servers-lemma"
    )
    assert {row["claim"] for row in rows if row["verdict"] == "holds"} == {*holds.split()}
    fails = {row["claim"] for row in rows if row["verdict"] == "does not hold"}
    assert fails == {"campos-sync-keeps-accuracy"}
