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


@pytest.fixture
def root(tmp_path):
    """Claims whose studies are not there, but for one."""
    for name in ("papers", "conf/workload", "reports/five_ways", "reports/predictions"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks/collectives.csv", tmp_path / "benchmarks")
    return tmp_path


def test_the_page_has_each_claim_and_each_paper(root):
    page = write_papers(root).read_text()
    with (root / "reports/papers/verdicts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    verdicts = [row["verdict"] for row in rows]
    assert page.count("| **") == len(rows)
    assert (
        f"Of {len(rows)} claims that something here tests, {verdicts.count('holds')} hold" in page
    )
    assert page.count("Not tested: ") == 5
    assert "Its runs were not made yet: paceline sweep exchange." in page
    assert {path.name for path in (root / "reports/papers").iterdir()} == {
        "README.md",
        "verdicts.csv",
    }


def test_a_verdict_that_no_run_results_in_is_refused(root, capsys):
    options = {"study": "papers", "check": False, "single": None, "verify": True}
    with pytest.raises(SettingError, match="first: paceline report papers"):
        verify_papers(root)
    write_papers(root)
    assert command("report").run(Namespace(**options), root) == 0
    path = root / "reports/papers/verdicts.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert capsys.readouterr().out.startswith(f"{len(rows)} claims")
    for forged, told in (
        ([rows[0] | {"verdict": "holds"}, *rows[1:]], "verdict is 'holds', and 'open' by its runs"),
        (rows[1:], "is None, and"),
        ([*rows, rows[0] | {"claim": "made-up"}], r"claims\.made-up: .* and None"),
    ):
        write_rows(path, list(rows[0]), forged)
        with pytest.raises(SettingError, match=told):
            verify_papers(root)
    with pytest.raises(SettingError, match=r"^verify: "):
        command("report").run(Namespace(**options | {"study": "five_ways"}), root)


def test_the_committed_verdicts_are_those_of_the_committed_runs():
    assert verify_papers(ROOT) > 20
