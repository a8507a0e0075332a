"""Where a study's target comes from, and at which side of it a run reaches it."""

import pytest

from paceline.report.how_it_was_run import target_origin
from paceline.report.page_tables import page_tables
from tests.made_findings import numbers
from tests.made_reports import make_run

LINK = "cluster.link.bandwidth"


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (None, ["-1", "32"]),
        ({"metric": "top1", "value": 0.85}, ["-1", "85"]),
        ({"metric": "top5", "value": 0.98}, ["-5", "98"]),
        ({"metric": "top1", "below_baseline": 0.03}, ["3", "-1", "32"]),
        ({"metric": "loss", "value": 0.5}, ["0.5"]),
        ({"metric": "loss", "below_baseline": 0.1}, ["0.1", "32"]),
    ],
)
def test_the_target_is_said_by_its_number_or_its_distance(findings, target, found):
    made = findings([make_run(top1=0.9, validation_loss=0.4)], target=target)
    origin = target_origin(made)
    assert numbers(origin) == found
    (table,) = (each for each in page_tables(made) if each.name == "Time to the target")
    side = "below" if target and target["metric"] == "loss" else "above"
    assert f"at or {side} the target" in table.caption
    assert origin in table.caption


def test_a_target_that_a_run_missed_takes_more_than_the_longest_run(findings):
    runs = [make_run(seed=seed, top1=top1) for seed, top1 in ((0, 0.9), (1, 0.7))]
    (table,) = (
        each
        for each in page_tables(findings(runs, target={"metric": "top1", "value": 0.8}))
        if each.name == "Time to the target"
    )
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["reached by"], row["images"], row["updates"]) == (
        "1 of 2 runs",
        "> 96,000",
        "> 3,000",
    )


@pytest.mark.parametrize(
    ("scheme", "settings", "words"),
    [
        ("sync_allreduce", {LINK: None}, "(all-reduce, 32 images per worker and step)"),
        (
            "local_sgd",
            {LINK: 1.25e9, "training.rate": "by_rule"},
            "(local SGD, 32 images per worker and step, links of 10 Gbit/s, rate by rule)",
        ),
        ("sync_allreduce", {"model.shards": 2}, "(all-reduce, 1 worker of 2 processes, "),
    ],
)
def test_the_baseline_is_named_by_what_it_sets(findings, scheme, settings, words):
    runs = [make_run(scheme=scheme, seed=seed, **settings) for seed in (0, 1)]
    runs += [make_run(scheme=scheme, workers=2, seed=s, **settings | {LINK: 1e9}) for s in (0, 1)]
    axes = list(dict.fromkeys(["scheme", "workers", "batch_size", "seed", *settings]))
    assert words in target_origin(findings(runs, axes=axes))
