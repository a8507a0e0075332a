"""Images/s, exchange and staleness of runs beside what is predicted, computed by hand."""

import pytest

from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.tables import read_tables
from paceline.report.findings import read_findings
from paceline.report.summary import summary
from tests.made_findings import numbers
from tests.made_reports import concluded, fail, make_run, write_page, write_reports, write_rows

SYNC, ASYNC = "sync_allreduce", "async_parameter_server"
COLUMNS = ["key", "kind", "half", "cluster", "images_per_second", "free_images_per_second"]
COLUMNS += ["staleness_distance", "staleness_p"]
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


def test_errors_are_of_the_means_of_seconds(tmp_path):
    table = concluded(read_tables(write_predicted(tmp_path / "made")), "rate_n")
    rows = table.set_index(["scheme", "workers"])
    assert list(rows["rate_observed"]) == pytest.approx([1000, 1500, 1050, 1600])
    assert list(rows["rate_error"]) == pytest.approx([0.1, 0, -50 / 1050, -0.25])
    assert list(rows["rate_verdict"]) == ["near", "near", "near", "far"]
    assert list(rows["rate_n"]) == [2] * 4
    assert list(rows.loc[(ASYNC, 2), ["rate_least", "rate_most"]]) == [1000, 4000]


def test_the_faster_of_two_is_right_wrong_or_too_close(tmp_path):
    def verdicts(folder):
        table = predicted_comparisons(read_tables(folder))
        keys = zip(table["scheme"], table["workers"], table["against"], strict=True)
        return dict(zip(keys, table["verdict"], strict=True))

    assert verdicts(write_predicted(tmp_path / "made")) == {
        (SYNC, 2, "1 worker"): "right",
        (ASYNC, 1, SYNC): "too close",
        (ASYNC, 2, SYNC): "too close",
        (ASYNC, 2, "1 worker"): "right",
    }
    faster = {**MEASURED, (ASYNC, 2): ((2000, 2000), 1200)}
    assert verdicts(write_predicted(tmp_path / "faster", faster))[ASYNC, 2, SYNC] == "wrong"


def test_what_went_into_a_prediction_is_not_judged(tmp_path):
    folder = write_predicted(tmp_path / "made", calibrated=[(ASYNC, 1)])
    tables = read_tables(folder)
    verdicts = list(concluded(tables, "rate_n")["rate_verdict"])
    assert verdicts == ["near", "near", "calibrated", "far"]
    compared = predicted_comparisons(tables)
    assert (ASYNC, 1) not in set(zip(compared["scheme"], compared["workers"], strict=True))
    assert summary(read_findings(folder)).rows[0][1] == "2 of 3"


def test_the_page_says_how_near(tmp_path):
    folder = write_predicted(tmp_path / "made")
    near, faster = summary(read_findings(folder)).rows
    assert near[1:3] == ["3 of 4", "7 %"]
    assert numbers(near[3]) == ["-25", "2"]
    assert faster[1] == "2 of 2"
    assert "3 of 4" in write_page(folder).read_text()
    assert (folder / "figures/predicted.svg").is_file()


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
