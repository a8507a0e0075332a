"""How a study was run and where its target comes from, in words; what is not known is left out."""

import pytest

from paceline.report.how_it_was_run import how_it_was_run, target_origin
from paceline.report.number_format import bit_rate, percent, seconds, size, with_interval
from paceline.report.page_tables import page_tables
from tests.made_decisions import made_tuning
from tests.made_findings import numbers
from tests.made_reports import make_run

EVALUATIONS, IMAGES = "measurement.evaluations", "measurement.curve_images"
LINK, JITTER = "cluster.link.bandwidth", "cluster.step_jitter"
EPOCHS, SAMPLES = "training.epochs", "training.samples"
SGD = {"training.momentum": 0.9, "training.schedule": "constant"}
LARGE = "96,000 images over all"


@pytest.mark.parametrize(
    ("name", "run", "settings", "words"),
    [
        ("Optimizer", {}, {"model._target_": "own.Module"}, "momentum 0.9, constant schedule"),
        ("Optimizer", {}, {"model.optimizer._target_": "torch.optim.RMSprop"}, "RMSprop, mom"),
        ("Optimizer", {"optimizer": "SGD", "scheduler": ""}, {}, "SGD, momentum 0.9, constant"),
        (
            "Optimizer",
            {"optimizer": "AdamW", "scheduler": "CosineAnnealingLR", "momentum": None},
            {},
            "AdamW, the rate follows the module's CosineAnnealingLR",
        ),
        (
            "Optimizer",
            {"optimizer": "SGD", "scheduler": "LinearLR, OneCycleLR"},
            {"training.lr_rule": "none"},
            "SGD, the rate follows the module's LinearLR, OneCycleLR, momentum 0.9",
        ),
        ("Data", {}, {"data._target_": "own.Data"}, "fashion_mnist_subset, "),
        ("Data", {}, {"data._target_": "paceline.data.synthetic.Synthetic"}, "fashion_mnist_sub"),
        ("Budget", {}, {EPOCHS: 5, SAMPLES: 96000}, LARGE),
        ("Budget", {}, {EPOCHS: 5}, LARGE),  # samples differ by point
        ("Evaluations", {}, {EVALUATIONS: 1, IMAGES: 2000}, "1 a run, on all validation images"),
        ("Evaluations", {}, {EVALUATIONS: 50}, "50 a run, on all validation images"),
        ("Cluster", {}, {"workload.name": "resnet50"}, "local, gradients as of resnet50"),
        (
            "Cluster",
            {},
            {JITTER: 0.2, LINK: 1.25e9, "cluster.slow_factor": 2},
            "local, step times vary by 20.0 %, links of 10 Gbit/s, a slow",
        ),
    ],
)
def test_what_ran_is_told_in_words(findings, name, run, settings, words):
    told = dict(how_it_was_run(findings([make_run(kind="paced", **run)], settings=SGD | settings)))
    assert told[name].startswith(words)
    assert ("Evaluations" in told) == (name == "Evaluations")
    assert ("is not followed" in told["Data"]) == ("own.Data" in settings.values())


def test_runs_that_were_retimed_cost_nothing(findings):
    runs = [make_run(seed=seed, wall_seconds=3600.0, retimed_from="") for seed in (0, 1, 2)]
    runs[2] |= {"retimed_from": runs[0]["key"]}
    assert numbers(dict(how_it_was_run(findings(runs)))["Cost"]) == ["2.0", "2"]


def test_what_all_runs_have_is_said_once_and_steps_of_measured_runs_vary_as_they_do(findings):
    runs = [make_run(seed=seed) for seed in (0, 1)]
    trials = made_tuning(runs, {}, workers=1)
    told = dict(how_it_was_run(findings(runs, trials=trials, settings={JITTER: 0})))
    assert (told["Machine"], told["Cluster"]) == ("A Made-up Processor, 4 cores, no GPU", "local")
    assert numbers(told["Search"]) == ["1", "1", "1", "1", "0", "0"]


@pytest.mark.parametrize(
    ("target", "stated"),
    [
        (None, ["-1", "32"]),
        ({"metric": "top1", "value": 0.85}, ["-1", "85"]),
        ({"metric": "top5", "value": 0.98}, ["-5", "98"]),
        ({"metric": "top1", "below_baseline": 0.03}, ["3", "-1", "32"]),
        ({"metric": "loss", "value": 0.5}, ["0.5"]),
        ({"metric": "loss", "below_baseline": 0.1}, ["0.1", "32"]),
    ],
)
def test_the_target_is_said_by_its_number_or_its_distance(findings, target, stated):
    found = findings([make_run(top1=0.9, validation_loss=0.4)], target=target)
    origin = target_origin(found)
    table = next(table for table in page_tables(found) if table.name == "Time to the target")
    assert numbers(origin) == stated
    side = "below" if target and target["metric"] == "loss" else "above"
    assert f"at or {side} the target" in table.caption
    assert origin in table.caption


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


def test_numbers_have_three_digits_and_the_unit_that_a_reader_expects():
    times = [seconds(value) for value in (1.3, 12.345, 1234.5, -0.5)]
    assert times == ["1.30", "12.3", "1,234", "-0.50"]
    assert [size(value) for value in (30_696, 10**6, 102_228_128)] == ["30.7 kB", "1 MB", "102 MB"]
    rates = [bit_rate(value) for value in (2.5e7, 1.25e8, 1.25e9, 7e9)]
    assert rates == ["200 Mbit/s", "1 Gbit/s", "10 Gbit/s", "56 Gbit/s"]
    row = {"x_mean": 0.85, "x_low": 0.8, "x_high": 0.9, "x_n": 3}
    assert with_interval(row, "x", percent) == "85.0 % (80.0 to 90.0), n = 3"
    alone = row | {"x_low": None, "x_high": None, "x_n": 1}
    assert with_interval(alone, "x", percent) == "85.0 % (no interval), n = 1"
