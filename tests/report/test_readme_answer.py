"""The table of answers in README.md: that of the committed tables, and renewed by the command."""

import shutil
from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest

from paceline.analysis.analyse import analyse
from paceline.cli import command
from paceline.report.page import report
from paceline.report.readme_answer import BEGIN, END, readme_answer, write_readme_answer
from tests.made_reports import made_two_schemes, write_reports

ROOT = Path(__file__).parents[2]
SHOWN = "scale"


def test_the_committed_table_is_that_of_the_committed_tables():
    """Where this fails: `paceline report`."""
    assert readme_answer(ROOT / "reports") in (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("analysed") / SHOWN
    analyse(write_reports(folder, made_two_schemes(spread=30, accuracy=0.89)))
    return folder


@pytest.fixture
def root(analysed, tmp_path):
    shutil.copytree(analysed, tmp_path / "reports" / SHOWN)
    return tmp_path


def test_a_row_has_the_numbers_of_the_best(root):
    decision = pd.read_csv(root / f"reports/{SHOWN}/tables/decision.csv")
    chosen = decision[(decision["workers"] == 2) & (decision["scheme"] == "sync_allreduce")]
    (best,) = chosen.to_dict("records")
    (row,) = readme_answer(root / "reports").splitlines()[3:-1]
    place, use, speed, kind, page = row.strip("| ").split(" | ")
    assert place == "2 workers"
    assert use == "**all-reduce** (tied with: asynchronous servers, less accurate)"
    assert best["tier"] == "tied"
    low, high = best["best_speedup_low"], best["best_speedup_high"]
    assert speed == f"{best['best_speedup_mean']:.1f} ({low:.1f} to {high:.1f}), n = 3"
    assert (kind, page) == ("measured", f"[{SHOWN}](reports/{SHOWN}/README.md)")


def test_the_command_renews_what_is_between_the_markers_alone(root):
    readme = root / "README.md"
    readme.write_text(f"before \\1\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    options = Namespace(study=None, check=False, single=None, verify=False, records=None)
    assert command("report").run(options, root) == 0
    assert readme.read_text() == f"before \\1\n\n{readme_answer(root / 'reports')}\n\nafter\n"
    assert (root / "reports/index.html").is_file()


def test_a_readme_without_markers_or_none_is_left_alone(root):
    write_readme_answer(root)
    assert not (root / "README.md").exists()
    (root / "README.md").write_text(f"mine\n{BEGIN}\n")
    write_readme_answer(root)
    assert (root / "README.md").read_text() == f"mine\n{BEGIN}\n"


def test_where_no_scheme_is_best_none_is_named(root):
    runs = [run for run in made_two_schemes() if run["workers"] == 2]  # no baseline: no target
    analyse(write_reports(root / "reports" / SHOWN, runs))
    (row,) = readme_answer(root / "reports").splitlines()[3:-1]
    assert row.startswith("| 2 workers | no winner |  | measured |")


def test_a_scheme_is_named_with_what_it_always_has(root):
    """A setting that only tells schemes apart is no axis; it is still a part of the name."""
    axes = ["scheme", "workers", "batch_size", "seed", "scheme.backup_workers"]
    runs = [
        run | {"scheme.backup_workers": 1 if run["scheme"].startswith("async") else None}
        for run in made_two_schemes(spread=30, accuracy=0.89)
    ]
    folder = write_reports(root / "reports" / SHOWN, runs, axes=axes)
    analyse(folder)
    assert "asynchronous servers, 1 backup worker" in readme_answer(root / "reports")
    assert "asynchronous servers, 1 backup worker" in report(folder).read_text()
    assert "scheme.backup_workers" not in (folder / "tables/decision.csv").read_text()
