"""How well the virtual clock agrees with real processes, and predictions with what was observed.

Counts and numbers on tables made by hand, and of runs beside what is predicted.
"""

import math

import pandas as pd
import pytest

from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.tables import read_tables
from paceline.report.findings import read_findings
from paceline.report.page_tables import page_tables
from paceline.report.summary import summary
from tests.made_findings import made_findings, numbers
from tests.made_reports import concluded, fail, make_run, write_page, write_reports, write_rows

SYNC, ASYNC = "sync_allreduce", "async_parameter_server"
NAN = math.nan
UNJUDGED = pd.DataFrame(columns=["against"])


def judged(what, workers, mean, verdict, measure="ratio", low=NAN, high=NAN):
    far = NAN if what == "test_top1" else abs(mean - (measure == "ratio"))
    row = {"scheme": ASYNC, "workers": workers, "against": "paced", "what": what, "distance": far}
    return row | {"measure": measure, "verdict": verdict, "mean": mean, "low": low, "high": high}


def test_agreement_is_counted_and_the_worst_is_named():
    rows = [
        judged("images_per_second", 2, 1.20, "outside"),
        judged("images_per_second", 4, 1.02, "within"),
        judged("images_per_second", 8, NAN, "unknown"),
        judged("staleness_mean", 2, 0.03, "within", "difference"),
        judged("test_top1", 2, 0.0, "within", "difference", -0.001, 0.002),
        judged("test_top1", 4, 0.0, "outside", "difference", -0.05, 0.06),
    ]
    said = summary(made_findings(clock_agreement=pd.DataFrame(rows))).rows
    assert [(row[1], numbers(row[2])) for row in said] == [
        ("1 of 2", ["1.20", "2"]),
        ("1 of 1", ["+0.03", "2"]),
        ("1 of 2", ["-5.00", "+6.00", "4"]),
    ]
    assert summary(made_findings(clock_agreement=UNJUDGED)) is None


def rate(workers, error, half=""):
    row = {"scheme": ASYNC, "workers": workers, "kind": "paced", "rate_half": half, "rate_n": 2}
    return row | {"rate_verdict": "near" if abs(error) <= 0.1 else "far", "rate_error": error}


def comparison(verdict, error=0.01, half="", against=SYNC):
    row = {"kind": "paced", "half": half, "against": against}
    return row | {"verdict": verdict, "error": error}


def exchange(error, verdict, distance=NAN, p=NAN, staleness=""):
    row = {"n": 2, "half": "", "error": error, "verdict": verdict}
    row |= {"staleness_distance": distance, "staleness_p": p, "staleness_verdict": staleness}
    named = {f"exchange_{name}": value for name, value in row.items()}
    return named | {"scheme": ASYNC, "workers": 2}


def predicted(rates, comparisons=(), exchanges=()):
    """The rows of the summary of these rows of tables, without what each compares."""
    compared = pd.DataFrame(list(comparisons), columns=list(comparison("right")))
    found = made_findings(
        configurations=pd.DataFrame([*rates, *exchanges]),
        predicted_comparisons=compared,
        clock_agreement=UNJUDGED,
    )
    return [row[1:] for row in summary(found).rows]


def test_comparisons_are_counted_and_those_with_the_reference_have_errors():
    rows = [comparison("right", 0.1), comparison("wrong", -0.3), comparison("too close", 0.02)]
    rows += [comparison("right", 0.9, against="1 worker")]
    _, faster, ratios = predicted([rate(2, 0.0)], rows)
    assert faster[0] == "2 of 3"
    assert ratios == ["2 of 3", "10 %", "-30 %"]


def test_exchange_and_staleness_are_counted():
    rows = [exchange(0.5, "far"), exchange(0.1, "near", 0.2, 0.04, "apart")]
    rows += [exchange(-0.1, "near", 0.1, 0.9, "alike")]
    _, exchanged, stale = predicted([rate(2, 0.0)], (), rows)
    assert exchanged[:2] == ["2 of 3", "10 %"]
    assert numbers(exchanged[2]) == ["+50", "2"]
    assert stale == ["1 of 2", "15 %", "20 % of pushes"]


def test_validation_comes_before_development():
    rates = [rate(1, 0.5, "development"), rate(2, 0.01, "validation")]
    rows = [comparison("right", half=half) for half in ("development", "validation", "validation")]
    found = predicted(rates, rows)
    assert [row[0] for row in found] == ["1 of 1", "2 of 2", "2 of 2", "0 of 1", "1 of 1", "1 of 1"]


def twins(workers, ratio=1.0, stale=2.0, points=(0.0, 0.0)):
    """Paced runs, and virtual ones with `ratio` of their speed, and `points` of top-1 more."""
    own = {"paced": ("local", 1.0, (0, 0)), "virtual": ("virtual", ratio, points)}
    return [
        make_run(
            ASYNC,
            workers,
            32,
            seed,
            kind=kind,
            cluster=cluster,
            key=f"{workers}{seed}{kind[0]}",
            images_per_second=1000.0 * speed,
            staleness_mean=stale,
            test_top1=0.8 + more[seed] / 100,
        )
        for seed in (0, 1)
        for kind, (cluster, speed, more) in own.items()
    ]


def test_two_clocks_have_a_table_and_no_axis_of_their_clusters(findings):
    axes = ["scheme", "workers", "cluster", "seed"]
    found = findings(twins(2, 1.1, points=(0, 1)) + twins(1, stale=0.0), axes=axes)
    assert found.varying == []
    table = page_tables(found)[0]
    assert table.name == "Virtual against paced"
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    two = next(row for row in rows if row["workers"] == "2")
    assert (two["compared with"], two["kind"]) == ("paced", "virtual")
    assert two["images/s, ratio"] == "1.10 (1.10 to 1.10), n = 2"
    assert two["top-1 on test, points"] == "+0.50 (-5.85 to +6.85), n = 2"
    assert {row["staleness, ratio or ± updates"] for row in rows} == {
        "1.00 (1.00 to 1.00), n = 2",
        "+0.00 (+0.00 to +0.00), n = 2",
    }
    both = [run | {"cluster": f"c{n % 4}"} for n, run in enumerate(twins(2))]
    assert findings(both, axes=axes).varying == ["cluster"]


MEASURED = {  # images/s by scheme and workers, for each seed; then what is predicted
    (SYNC, 1): ((1000, 1000), 1100),
    (SYNC, 2): ((1500, 1500), 1500),
    (ASYNC, 1): ((1050, 1050), 1000),
    (ASYNC, 2): ((1000, 4000), 1200),  # 1600 in the mean of seconds
}
PACED = {  # beside these: with free messages; and for each seed the distance and p of staleness
    (SYNC, 2): ((400, 400), 500, 640, ("", ""), ("", "")),
    (ASYNC, 2): ((512, 512), 500, 640, (0.1, 0.3), (0.5, 0.02)),
    (ASYNC, 4): ((1200, 1200), 1210, 1280, (0.2, 0.2), (0.5, 0.4)),
}
COLUMNS = ["key", "kind", "half", "cluster", "images_per_second", "free_images_per_second"]
COLUMNS += ["staleness_distance", "staleness_p"]


def write_predicted(folder, predicted_by=MEASURED, calibrated=(), kind="measured"):
    runs, rows = [], []
    for (scheme, workers), (rates, rate, *exchange) in predicted_by.items():
        free, distances, ps = exchange or ("", ("", ""), ("", ""))
        is_input = (scheme, workers) in calibrated
        for seed, observed in enumerate(rates):
            run = make_run(scheme, workers, 32, seed, images_per_second=observed, kind=kind)
            runs.append(run)
            cells = (run["key"], "calibrated" if is_input else "predicted", "", "made_profile")
            cells += (rate, free, distances[seed], ps[seed])
            rows.append(dict(zip(COLUMNS, cells, strict=True)))
    runs.append(fail(make_run(SYNC, 2, 32, 9, kind=kind)))
    write_reports(folder, runs)
    write_rows(folder / "predictions.csv", COLUMNS, rows)
    return folder


def test_errors_are_of_the_means_of_seconds_and_the_page_says_how_near(tmp_path):
    folder = write_predicted(tmp_path / "made")
    rows = concluded(read_tables(folder), "rate_n").set_index(["scheme", "workers"])
    assert list(rows["rate_observed"]) == pytest.approx([1000, 1500, 1050, 1600])
    assert list(rows["rate_error"]) == pytest.approx([0.1, 0, -50 / 1050, -0.25])
    assert list(rows["rate_verdict"]) == ["near", "near", "near", "far"]
    assert list(rows["rate_n"]) == [2] * 4
    assert list(rows.loc[(ASYNC, 2), ["rate_least", "rate_most"]]) == [1000, 4000]
    near, faster = summary(read_findings(folder)).rows
    assert near[1:3] == ["3 of 4", "7 %"]
    assert numbers(near[3]) == ["-25", "2"]
    assert faster[1] == "2 of 2"
    assert "3 of 4" in write_page(folder).read_text()
    assert (folder / "figures/predicted.svg").is_file()


def verdicts(tables):
    table = predicted_comparisons(tables)
    keys = zip(table["scheme"], table["workers"], table["against"], strict=True)
    return dict(zip(keys, table["verdict"], strict=True))


def test_the_faster_of_two_is_right_wrong_or_too_close(tmp_path):
    assert verdicts(read_tables(write_predicted(tmp_path / "made"))) == {
        (SYNC, 2, "1 worker"): "right",
        (ASYNC, 1, SYNC): "too close",
        (ASYNC, 2, SYNC): "too close",
        (ASYNC, 2, "1 worker"): "right",
    }
    faster = {**MEASURED, (ASYNC, 2): ((2000, 2000), 1200)}
    found = verdicts(read_tables(write_predicted(tmp_path / "faster", faster)))
    assert found[ASYNC, 2, SYNC] == "wrong"


def test_what_went_into_a_prediction_is_not_judged(tmp_path):
    folder = write_predicted(tmp_path / "made", calibrated=[(ASYNC, 1)])
    tables = read_tables(folder)
    found = list(concluded(tables, "rate_n")["rate_verdict"])
    assert found == ["near", "near", "calibrated", "far"]
    assert (ASYNC, 1) not in {key[:2] for key in verdicts(tables)}
    assert summary(read_findings(folder)).rows[0][1] == "2 of 3"


def test_exchange_is_what_a_step_takes_beyond_the_same_with_free_messages(tmp_path):
    """A step of all workers has 64 or 128 images: 0.1 s without messages."""
    tables = read_tables(write_predicted(tmp_path / "made", PACED, kind="paced"))
    table = concluded(tables, "exchange_n").set_index(["scheme", "workers"]).loc[list(PACED)]
    assert list(table["exchange_observed"]) == pytest.approx([0.06, 0.025, 128 / 1200 - 0.1])
    assert list(table["exchange_predicted"]) == pytest.approx([0.028, 0.028, 128 / 1210 - 0.1])
    errors = [0.028 / 0.06 - 1, 0.12, -0.132231]
    assert list(table["exchange_error"]) == pytest.approx(errors, abs=1e-5)
    assert list(table["exchange_verdict"]) == ["far", "near", "near"]
    assert list(table["rate_verdict"]) == ["far", "near", "near"]
    # staleness is apart if any seed is so improbable: the least of two p is doubled
    assert table["exchange_staleness_p"].isna().tolist() == [True, False, False]
    assert list(table["exchange_staleness_p"])[1:] == pytest.approx([0.04, 0.8])
    assert list(table["exchange_staleness_distance"])[1:] == pytest.approx([0.2, 0.2])
    assert list(table["exchange_staleness_verdict"])[1:] == ["apart", "alike"]
