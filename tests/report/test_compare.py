"""`paceline show STUDY STUDY`: two reports joined by situation and scheme."""

from argparse import Namespace

import pandas as pd
import pytest

from paceline.analysis.analyse import analyse
from paceline.cli import command
from paceline.errors import SettingError
from paceline.report.compare import as_text, compare, read_report
from tests.made_reports import fail, made_two_schemes, make_run, write_reports


def analysed(folder, runs, **about):
    analyse(write_reports(folder, runs, **about))
    return read_report(folder.name, folder.parent)


def twice_as_fast(runs, **changes):
    return [
        run | changes | {"images_per_second": 2 * run["images_per_second"], "seconds": 4.0}
        for run in runs
    ]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return tmp_path_factory.mktemp("project")


@pytest.fixture(scope="module")
def two(project):
    """A, and B with twice the images/s, at 0.05 more of top-1 under the asynchronous scheme."""
    a = made_two_schemes(spread=30)
    b = twice_as_fast(made_two_schemes(spread=30, accuracy=0.85), commit="fedcba")
    settings = [{"training.epochs": 5, "data.name": "x"}, {"training.epochs": 9, "data.name": "x"}]
    return [
        analysed(project / "reports" / name, runs, settings=known)
        for name, runs, known in zip("ab", (a, b), settings, strict=True)
    ]


def test_rows_are_those_of_both_tables(two):
    a, b = two
    rows = compare(a, b).rows.set_index(["scheme", "workers"])
    assert len(rows) == len(a.decision) == len(b.decision) == 4
    for report, side in ((a, "a"), (b, "b")):
        decision = report.decision.set_index(["scheme", "workers"])
        for part in ("mean", "low", "high"):
            expected = decision[f"speedup_{part}"].where(decision["n_reached"] > 0)
            pd.testing.assert_series_equal(
                rows[f"speedup_{side}_{part}"], expected, check_names=False
            )
    ratios = rows["speedup_b_mean"] / rows["speedup_a_mean"]
    pd.testing.assert_series_equal(rows["speedup_ratio"], ratios, check_names=False)
    assert rows["images_per_second_ratio"].tolist() == pytest.approx([2] * 4)
    gains = rows["top1_difference"].groupby("scheme").mean()
    assert gains["sync_allreduce"] == pytest.approx(0)
    assert gains["async_parameter_server"] == pytest.approx(0.05)


def test_the_text_says_what_differs_and_both_tiers(two):
    text = as_text(compare(*two))
    head, _, table = text.partition("\n\n")
    assert "training.epochs: 5 | 9" in head
    assert "commit: 0123456789abcdef | fedcba" in head
    assert "data.name" not in head
    assert "versions.torch" not in head
    tiers = [report.decision.set_index(["scheme", "workers"])["tier"] for report in two]
    one, other = (each["async_parameter_server", 2] for each in tiers)
    (line,) = [line for line in table.splitlines() if line.startswith("2 workers  asynchronous")]
    assert (one if one == other else f"{one} -> {other}") in line
    assert line.split()[-2:] == ["+5.00", "2.00"]


def test_a_report_beside_itself_differs_in_nothing(two):
    text = as_text(compare(two[0], two[0]))
    assert text.startswith("Both were run alike.")
    assert "->" not in text.replace("tier A -> B", "")
    assert "Only" not in text


def test_what_one_alone_has_is_listed(tmp_path, two):
    runs = [run for run in made_two_schemes(spread=30) if run["workers"] == 1]
    runs += [make_run(workers=4, seed=seed, key=f"four{seed}") for seed in (0, 1, 2)]
    compared = compare(two[0], analysed(tmp_path / "reports/c", runs))
    only_a, only_b = compared.only
    assert only_a == ["2 workers: all-reduce; asynchronous servers"]
    assert only_b == ["4 workers: all-reduce"]
    assert set(compared.rows["workers"]) == {1}


def test_a_setting_of_all_points_is_joined_with_the_axis_of_the_other(tmp_path):
    axes = ["scheme", "workers", "seed", "training.rate"]
    runs = [
        run | {"training.rate": rate, "key": f"{run['key']}{rate}"}
        for run in made_two_schemes(spread=30)
        for rate in ("tuned", "by_rule")
    ]
    a = analysed(tmp_path / "a", runs, axes=axes)
    b = analysed(tmp_path / "b", made_two_schemes(), settings={"training.rate": "tuned"})
    compared = compare(a, b)
    assert set(compared.rows["training.rate"]) == {"tuned"}
    assert len(compared.rows) == 4
    assert len(compared.only[0]) == 2
    unknown = compare(a, analysed(tmp_path / "c", made_two_schemes()))
    assert "training.rate: varied only in A" in unknown.differs
    assert len(unknown.rows) == 8


def test_where_no_run_got_there_no_speedup_is_shown(tmp_path, two):
    runs = [
        fail(run, "diverged", "NaN") | {"top1": 0.1} if run["workers"] == 2 else run
        for run in made_two_schemes(spread=30)
    ]
    compared = compare(two[0], analysed(tmp_path / "never", runs))
    row = compared.rows[(compared.rows["workers"] == 2)].iloc[0]
    assert row["tier_b"] == "never"
    assert pd.isna(row["speedup_b_mean"])
    assert pd.isna(row["speedup_ratio"])


def test_the_command_prints_and_writes(project, tmp_path, two, capsys):
    path = tmp_path / "compared.csv"
    folder = str(project / "reports/b")  # a path, as of a report of another commit
    options = Namespace(study="a", other=folder, csv=str(path), open=False)
    assert command("show").run(options, project) == 0
    assert capsys.readouterr().out == as_text(compare(*two)) + "\n"
    assert len(pd.read_csv(path)) == 4


@pytest.mark.parametrize(
    ("changes", "setting", "text"),
    [
        ({"study": "nobody"}, "study", "no report of nobody"),
        ({"other": "raw"}, "study", "first: paceline report raw"),
        ({"csv": "/nowhere/x.csv"}, "csv", "no folder /nowhere"),
    ],
)
def test_what_is_not_there_is_named(project, two, changes, setting, text):
    write_reports(project / "reports/raw")
    options = Namespace(**{"study": "a", "other": "a", "csv": None, "open": False} | changes)
    with pytest.raises(SettingError, match=text) as error:
        command("show").run(options, project)
    assert error.value.setting == setting
