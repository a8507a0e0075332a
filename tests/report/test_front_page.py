"""The front page of all studies follows from their metrics."""

import json

import pytest

from paceline.cli import command
from paceline.report.findings import read_findings
from paceline.report.front_page import METRICS, study_metrics, write_front_page
from tests.made_reports import fail, made_two_schemes, make_run, write_page, write_reports


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
