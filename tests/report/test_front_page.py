"""The pages of all studies: the front page, and that of the papers' claims with their verdicts."""

import csv
import json
import shutil
from argparse import Namespace
from pathlib import Path

import pytest

from paceline.cli import command
from paceline.errors import SettingError
from paceline.report.findings import read_findings
from paceline.report.front_page import METRICS, study_metrics, write_front_page
from paceline.report.papers_page import verify_papers, write_papers
from tests.made_reports import (
    fail,
    made_two_schemes,
    make_run,
    write_page,
    write_reports,
    write_rows,
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of a study, and tables of a study that has no report."""
    reports = tmp_path_factory.mktemp("front") / "reports"
    write_reports(reports / "made", made_two_schemes(spread=30), question="Which <b>one|two</b>?")
    write_page(reports / "made")
    write_reports(reports / "later")
    return reports


def test_a_study_has_its_question_and_what_to_use(reports):
    text = write_front_page(reports).read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("| [made](made/README.md)")]
    metrics = json.loads((reports / "made" / METRICS).read_text())
    assert "Which &lt;b>one\\|two&lt;/b>?" in line
    assert metrics["answer"]
    assert metrics["answer"] in line


def test_metrics_are_means_by_configuration_over_finished_runs(tmp_path):
    """Each other axis is named only if it varies; a geometric mean of images/s."""
    made = [
        make_run("async_parameter_server", 2, test_top1=0.5, images_per_second=4e3),
        make_run("async_parameter_server", 2, seed=1, test_top1=0.7, images_per_second=16e3),
        fail(make_run("async_parameter_server", 2, seed=2), "diverged"),
        make_run(test_top1=0.9, images_per_second=5e3) | {"kind": "virtual"},
        fail(make_run(workers=2)),
    ]
    found = study_metrics(read_findings(write_reports(tmp_path / "made", made)))
    assert found.pop("answer")
    assert found == {
        "top1": {"async x2 measured": 0.6, "allreduce x1 virtual": 0.9},
        "images_per_second": {"async x2 measured": 8e3, "allreduce x1 virtual": 5e3},
        "target_seconds": {"allreduce x1 virtual": 7.45045},
        "n_finished": 3,
    }


def test_what_is_missing_or_damaged_is_named_with_its_command(reports):
    assert (
        "later/metrics.json; first: paceline report later" in write_front_page(reports).read_text()
    )
    for content in ("{}", "[]", "{", "null"):
        (reports / "later" / METRICS).write_text(content)
        text = write_front_page(reports).read_text()
        assert "later/metrics.json is damaged" in text
        assert "| [made]" in text
    (reports / "later" / METRICS).unlink()


def test_equal_metrics_make_equal_bytes(reports):
    first = write_front_page(reports).read_bytes()
    assert write_front_page(reports).read_bytes() == first


def test_the_command_without_a_study_writes_it(reports, capsys):
    names = dict.fromkeys(("study", "check", "single", "verify", "records"))
    options = type("Options", (), names)()
    assert command("report").run(options, reports.parent) == 0
    assert capsys.readouterr().out == f"{reports / 'README.md'}\n"


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
