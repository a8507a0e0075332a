import csv

import pytest

from paceline.analysis.predicted import predicted_comparisons
from paceline.analysis.tables import read_tables
from paceline.report.findings import read_findings
from paceline.report.summary import predictions
from tests.made_findings import numbers
from tests.made_reports import concluded, fail, make_run, write_page, write_reports

MEASURED = {  # images/s by scheme and workers, for each seed; then what is predicted
    ("sync_allreduce", 1): ((1000, 1000), 1100),
    ("sync_allreduce", 2): ((1500, 1500), 1500),
    ("async_parameter_server", 1): ((1050, 1050), 1000),
    ("async_parameter_server", 2): ((1000, 4000), 1200),  # 1600 in the mean of seconds
}


def write_predicted(folder, predicted_by=MEASURED, calibrated=()):
    runs, rows = [], []
    for (scheme, workers), (rates, rate) in predicted_by.items():
        for seed, measured in enumerate(rates):
            runs.append(make_run(scheme, workers, 32, seed, images_per_second=measured))
            kind = "calibrated" if (scheme, workers) in calibrated else "predicted"
            rows.append((runs[-1]["key"], kind, "", "made_profile", rate))
    runs.append(fail(make_run("sync_allreduce", 2, 32, 9)))
    write_reports(folder, runs)
    with (folder / "predictions.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("key", "kind", "half", "cluster", "images_per_second"), *rows]
        )
    return folder


def test_errors_are_of_the_means_of_seconds(tmp_path):
    table = concluded(read_tables(write_predicted(tmp_path / "made")), "rate_n")
    rows = table.set_index(["scheme", "workers"])
    assert list(rows["rate_observed"]) == pytest.approx([1000, 1500, 1050, 1600])
    assert list(rows["rate_error"]) == pytest.approx([0.1, 0, -50 / 1050, -0.25])
    assert list(rows["rate_verdict"]) == ["near", "near", "near", "far"]
    assert list(rows["rate_n"]) == [2] * 4
    last = rows.loc[("async_parameter_server", 2)]
    assert (last["rate_least"], last["rate_most"]) == (1000, 4000)


def test_the_faster_of_two_is_right_wrong_or_too_close(tmp_path):
    table = predicted_comparisons(read_tables(write_predicted(tmp_path / "made")))
    found = {(row["scheme"], row["workers"], row["against"]): row for _, row in table.iterrows()}
    assert {key: row["verdict"] for key, row in found.items()} == {
        ("sync_allreduce", 2, "1 worker"): "right",
        ("async_parameter_server", 1, "sync_allreduce"): "too close",
        ("async_parameter_server", 2, "sync_allreduce"): "too close",
        ("async_parameter_server", 2, "1 worker"): "right",
    }
    slower = {**MEASURED, ("async_parameter_server", 2): ((2000, 2000), 1200)}
    table = predicted_comparisons(read_tables(write_predicted(tmp_path / "slower", slower)))
    (against,) = table[(table["scheme"] != "sync_allreduce") & (table["workers"] == 2)][
        "against"
    ].loc[table["verdict"] == "wrong"]
    assert against == "sync_allreduce"


def test_what_went_into_a_prediction_is_not_judged(tmp_path):
    folder = write_predicted(tmp_path / "made", calibrated=[("async_parameter_server", 1)])
    tables = read_tables(folder)
    assert list(concluded(tables, "rate_n")["rate_verdict"]) == [
        "near",
        "near",
        "calibrated",
        "far",
    ]
    compared = predicted_comparisons(tables)
    assert list(zip(compared["scheme"], compared["workers"], compared["against"], strict=True)) == [
        ("sync_allreduce", 2, "1 worker"),
        ("async_parameter_server", 2, "sync_allreduce"),
        ("async_parameter_server", 2, "1 worker"),
    ]
    near, _ = predictions(read_findings(folder))
    assert numbers(near)[1:3] == ["2", "3"]


def test_the_page_says_how_near(tmp_path):
    folder = write_predicted(tmp_path / "made")
    near, compared = predictions(read_findings(folder))
    assert numbers(near) == ["15", "3", "4", "7", "-25", "2"]
    assert numbers(compared) == ["4", "2", "0", "2", "10"]
    page = write_page(folder).read_text()
    assert near in page
    assert "Predicted against observed throughput" in page
    assert (folder / "figures/predicted.svg").is_file()
