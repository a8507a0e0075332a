"""The table of answers in README.md: that of the committed tables, and renewed by the command."""

import itertools
from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest

from paceline.analysis.analyse import analyse
from paceline.cli import command
from paceline.report.page import report
from paceline.report.readme_answer import BEGIN, END, STUDIES, readme_answer, write_readme_answer
from tests.made_decisions import AXES, arm, two_arms, write_decided
from tests.made_reports import made_two_schemes, write_reports

ROOT = Path(__file__).parents[2]


def test_the_committed_table_is_that_of_the_committed_tables():
    """Where this fails: `paceline report`."""
    assert readme_answer(ROOT / "reports") in (ROOT / "README.md").read_text()


@pytest.fixture
def root(tmp_path):
    runs = made_two_schemes(spread=30, accuracy=0.89)
    analyse(write_reports(tmp_path / "reports" / STUDIES[0], runs))
    return tmp_path


def test_a_row_has_the_numbers_of_the_best(root):
    decision = pd.read_csv(root / f"reports/{STUDIES[0]}/tables/decision.csv")
    (best,) = decision[(decision["workers"] == 2) & (decision["tier"] == "best")].to_dict("records")
    (row,) = readme_answer(root / "reports").splitlines()[3:-1]
    place, use, speed, accuracy, kind, page = row.strip("| ").split(" | ")
    assert place == "example, 2 workers"
    assert use == "**asynchronous servers** (tied with: all-reduce, of higher accuracy)"
    assert best["scheme"] == "async_parameter_server"
    low, high = best["speedup_low"], best["speedup_high"]
    assert speed == f"{best['speedup_mean']:.1f} ({low:.1f} to {high:.1f}), n = 3"
    points = [100 * best[f"one_worker_top1_difference_{part}"] for part in ("mean", "low", "high")]
    assert accuracy == "{:+.2f} ({:+.2f} to {:+.2f}), n = 3".format(*points)
    assert (kind, page) == ("measured", "[example](reports/example/README.md)")


def test_many_situations_have_a_row_for_each_number_of_workers(tmp_path):
    slow = "cluster.slow_workers"
    runs = [run | {slow: 0} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    for late in range(5):
        for workers in (2, 4):
            runs += two_arms((301, 101 + 10 * late), workers, **{slow: late})
    folder = write_decided(tmp_path / "reports" / STUDIES[0], runs, axes=[*AXES, slow])
    analyse(folder)
    decision = pd.read_csv(folder / "tables/decision.csv")
    best = decision[(decision["workers"] == 4) & (decision["scheme"] == "gossip")]
    first, second = readme_answer(tmp_path / "reports").splitlines()[3:-1]
    place, use, speed, accuracy, *_ = first.strip("| ").split(" | ")
    assert (place, use) == (
        "example, 4 workers, 5 situations",
        "gossip in 5 (all other schemes are slower or missed the target)",
    )
    low, high = best["speedup_mean"].min(), best["speedup_mean"].max()
    assert speed == f"{low:.1f} to {high:.1f}, by situation"
    assert accuracy == "+0.00 to +0.00, by situation"
    assert second.startswith("| example, 2 workers, 5 situations | ")


def test_a_use_names_the_value_that_all_its_situations_and_no_others_have(tmp_path):
    slow, links = "cluster.slow_workers", "cluster.link.bandwidth"
    runs = arm("sync_allreduce", 801, 0.9, workers=1)
    runs = [run | {slow: 0, links: None} for run in runs]
    for late, bandwidth in itertools.product((0, 1, 2), (None, 1e8, 1e9)):
        seconds = (101, 301) if bandwidth is None else (301, 101) if late else (111, 101)
        runs += two_arms(seconds, 4, **{slow: late, links: bandwidth})
    analyse(write_decided(tmp_path / "reports" / STUDIES[0], runs, axes=[*AXES, slow, links]))
    (row,) = readme_answer(tmp_path / "reports").splitlines()[3:-1]
    others = "all other schemes are slower or missed the target"
    uses = (
        f"gossip in 6 (in 4 of them {others}); "
        f"all-reduce in 3, those with links without a limit ({others})"
    )
    assert f"| example, 4 workers, 9 situations | {uses} |" in row


def test_the_command_renews_what_is_between_the_markers_alone(root):
    readme = root / "README.md"
    readme.write_text(f"before \\1\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    assert command("report").run(Namespace(study=None, check=False, single=None), root) == 0
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
    analyse(write_reports(root / "reports" / STUDIES[0], runs))
    (row,) = readme_answer(root / "reports").splitlines()[3:-1]
    assert row.startswith("| example, 2 workers | no winner |  |  | measured |")


def test_a_scheme_is_named_with_what_it_always_has(root):
    """A setting that only tells schemes apart is no axis; it is still a part of the name."""
    axes = ["scheme", "workers", "batch_size", "seed", "scheme.backup_workers"]
    runs = [
        run | {"scheme.backup_workers": 1 if run["scheme"].startswith("async") else None}
        for run in made_two_schemes(spread=30, accuracy=0.89)
    ]
    folder = write_reports(root / "reports" / STUDIES[0], runs, axes=axes)
    analyse(folder)
    assert "asynchronous servers, 1 backup worker" in readme_answer(root / "reports")
    assert "asynchronous servers, 1 backup worker" in report(folder).read_text()
    assert "scheme.backup_workers" not in (folder / "tables/decision.csv").read_text()
