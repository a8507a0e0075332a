"""The ledger of the papers' claims: nothing in it can be made by hand."""

import csv
import json
import re
import shutil
from argparse import Namespace
from pathlib import Path

import pytest

from paceline.analysis.ledger import NOT_RUN, REPLICATED, UNDECIDED, UNTESTABLE, ledger
from paceline.cli import command
from paceline.errors import SettingError
from paceline.record.tied_files import SUMS, write_sums
from paceline.report.papers_page import chance, extent, require_same, verify_papers, write_papers
from tests.made_reports import tie, write_rows

ROOT = Path(__file__).parents[2]
STUDIES = ("collectives", "five_ways", "exchange", "predictions")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A copy of the claims and of the tables that test them, with their pages."""
    root = tmp_path_factory.mktemp("papers")
    for name in (
        "claims",
        "papers",
        "conf/workload",
        "experiments",
        *(f"reports/{each}" for each in STUDIES),
    ):
        shutil.copytree(ROOT / name, root / name)
    write_papers(root)
    return root


@pytest.fixture
def root(made, tmp_path):
    return shutil.copytree(made, tmp_path / "copy")


def retied(folder):
    """Digests of the files of the pages as they are now, as a forger would write them."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != SUMS]
    write_sums(folder / SUMS, {str(path.relative_to(folder)): path for path in files})


def test_pages_and_ledgers_have_every_claim(made):
    folder = made / "reports/papers"
    with (folder / "ledger.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 49
    public = json.loads((folder / "ledger.json").read_text())
    assert [each["verdict"] for paper in public for each in paper["claims"]] == [
        row["verdict"] for row in rows
    ]
    assert all(paper["doi"].startswith("10.") for paper in public)
    index = (folder / "index.html").read_text()
    for row in rows:
        page = (folder / f"{row['paper']}.html").read_text()
        assert f'id="{row["claim"]}"' in page
        assert f"{row['paper']}.html#{row['claim']}" in index
        assert row["why"] or row["ours"]
        assert row["command"] or not row["study"]
    assert (folder / "figures/firecaffe2016-1.svg").is_file()


def test_a_false_entry_is_caught(made, root):
    """A verdict that no table results in, an entry that is left out, and one that is invented."""
    folder = root / "reports/papers"
    path = folder / "ledger.csv"
    true = path.read_text()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    false = next(row for row in rows if row["verdict"] != REPLICATED)
    verdict, false["verdict"] = false["verdict"], REPLICATED
    for forged, told in (
        (rows, rf"claims\.{false['claim']}: .*verdict is '{REPLICATED}', and '{verdict}'"),
        ([row for row in rows if row is not false], rf"claims\.{false['claim']}: .*None"),
        ([*rows, rows[0] | {"claim": "made-up"}], rf"claims\.{false['claim']}"),
    ):
        write_rows(path, list(rows[0]), forged)
        retied(folder)
        with pytest.raises(SettingError, match=told):
            require_same(made / "reports/papers", folder)
    path.write_text(true)
    retied(folder)
    assert require_same(made / "reports/papers", folder) == 49


def test_a_false_page_is_caught(made, root):
    for name in ("index.html", "README.md", "ledger.json", "kumar2017.html", SUMS):
        path = root / "reports/papers" / name
        true = path.read_text()
        path.write_text(true + " ")
        with pytest.raises(SettingError, match=f"{name} is not what the claims result in"):
            require_same(made / "reports/papers", root / "reports/papers")
        path.write_text(true)


@pytest.mark.slow
def test_a_table_that_was_changed_by_hand_is_caught(root):
    """Even where its digest was changed along: its records have other numbers."""
    path = root / "reports/five_ways/runs.csv"
    with path.open(newline="") as file:
        loss = next(csv.DictReader(file))["train_loss"]
    path.write_text(path.read_text().replace(loss, "0.125"))
    with pytest.raises(SettingError, match="not the file of the digest"):
        write_papers(root)
    tie(path.parent)
    write_papers(root)
    with pytest.raises(SettingError, match=r"train_loss is 0\.125"):
        verify_papers(root)


def test_claims_without_any_table_are_still_listed(root):
    for study in STUDIES:
        shutil.rmtree(root / "reports" / study)
    assert len(ledger(root)) == 49


def test_what_runs_decide_is_counted():
    judged = [(REPLICATED, "runs"), (REPLICATED, "workloads"), (UNDECIDED, "runs")]
    judged += [(UNDECIDED, "predictions"), (NOT_RUN, "runs"), (UNTESTABLE, "")]
    rows = [{"verdict": verdict, "study": study} for verdict, study in judged]
    assert extent(rows) == "Runs decide 1 of 6 claims, and do not decide 1."


def test_links_of_committed_pages_lead_to_files_of_the_repository():
    """A fresh checkout has no reports/index.html, for example."""
    folder = ROOT / "reports/papers"
    for page in folder.glob("*.html"):
        text = page.read_text()
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            path, _, place = link.partition("#")
            if path.startswith(("http", "data:")):
                continue
            target = (folder / path).resolve() if path else page
            assert target.is_file(), (page.name, link)
            assert target != ROOT / "reports/index.html", page.name
            assert not place or f'id="{place}"' in target.read_text(), (page.name, link)


def test_tests_that_pass_by_chance_are_counted():
    rows = [{"verdict": REPLICATED, "n": 5}] * 20 + [{"verdict": REPLICATED, "n": None}]
    assert chance(rows).startswith("20 of 21 claims")
    assert " 1.00 " in chance(rows)


def test_runs_of_another_project_are_judged(made, tmp_path):
    """By the claims of this one; a study that the other lacks is not run yet."""
    shutil.copytree(made / "reports/five_ways", tmp_path / "reports/five_ways")
    with (write_papers(made, judged=tmp_path).parent / "ledger.csv").open(newline="") as file:
        verdicts = {row["claim"]: row["verdict"] for row in csv.DictReader(file)}
    assert verdicts["yadan-same-updates"] == REPLICATED
    assert verdicts["firecaffe-tree-beats-server"] == verdicts["firecaffe-47x"] == NOT_RUN
    assert (tmp_path / "reports/papers/index.html").is_file()


@pytest.mark.slow
def test_the_command_line_verifies(root, capsys):
    options = Namespace(study="papers", check=False, single=None, verify=True, records=None)
    assert command("report").run(options, root) == 0
    assert capsys.readouterr().out.startswith("49 claims")


def test_what_is_of_a_study_or_of_the_papers_alone(tmp_path):
    for study, changes, named in (
        ("five_ways", {"verify": True}, "verify"),
        (None, {"verify": True}, "verify"),
        ("five_ways", {"records": tmp_path}, "records"),
        ("papers", {"records": tmp_path}, "records"),  # has no reports
        ("papers", {"records": tmp_path, "verify": True}, "records"),
        ("papers", {"check": True}, "check"),
    ):
        options = {"study": study, "check": False, "single": None, "verify": False, "records": None}
        options |= changes
        with pytest.raises(SettingError, match=f"^{named}: "):
            command("report").run(Namespace(**options), tmp_path)
