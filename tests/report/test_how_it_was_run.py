"""How a study was run, in words: what its tables do not say is left out."""

import pytest

from paceline.report.how_it_was_run import how_it_was_run
from paceline.report.words import scheme_name, scheme_words
from tests.made_reports import make_run

EVALUATIONS, IMAGES = "measurement.evaluations", "measurement.curve_images"
LINK = "cluster.link.bandwidth"


@pytest.mark.parametrize(
    ("run", "settings", "words"),
    [
        ({}, {}, "SGD, momentum 0.9, constant schedule"),
        ({}, {"model._target_": "own.Module"}, "momentum 0.9, constant schedule"),
        (
            {},
            {"model.optimizer._target_": "torch.optim.RMSprop"},
            "RMSprop, momentum",
        ),
        ({"optimizer": "SGD", "scheduler": ""}, {}, "SGD, momentum 0.9, constant schedule"),
        (
            {"optimizer": "AdamW", "scheduler": "CosineAnnealingLR", "momentum": None},
            {},
            "AdamW, the rate follows the module's CosineAnnealingLR",
        ),
        (
            {"optimizer": "SGD", "scheduler": "LinearLR, OneCycleLR"},
            {"training.lr_rule": "none"},
            "SGD, the rate follows the module's LinearLR, OneCycleLR, momentum 0.9",
        ),
    ],
)
def test_the_optimizer_and_the_schedule_are_those_that_ran(findings, run, settings, words):
    known = {"training.momentum": 0.9, "training.schedule": "constant", **settings}
    found = dict(how_it_was_run(findings([make_run(**run)], settings=known)))["Optimizer"]
    assert found.startswith(words)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        (
            "Data",
            {"data._target_": "own.Data"},
            "fashion_mnist_subset",
        ),
        ("Data", {"data._target_": "paceline.data.synthetic.Synthetic"}, "fashion_mnist_subset"),
        ("Budget", {"training.epochs": 5, "training.samples": None}, "5 epochs over all workers"),
        ("Budget", {"training.epochs": 5, "training.samples": 96000}, "96,000 images over all"),
        ("Budget", {"training.epochs": 5}, "96,000 images over all"),  # samples differ by point
        ("Evaluations", {EVALUATIONS: 1, IMAGES: 2000}, "1 a run, on all validation images"),
        ("Evaluations", {EVALUATIONS: 50}, "50 a run, on all validation images"),
        (
            "Evaluations",
            {EVALUATIONS: 50, IMAGES: 2000},
            "50 a run, on 2,000 validation",
        ),
        ("Cluster", {"workload.num_bytes": 10**8}, "local, gradients of 100 MB"),
        ("Cluster", {"workload.name": "resnet50"}, "local, gradients as of resnet50"),
        (
            "Cluster",
            {"cluster.step_jitter": 0.2, LINK: 1.25e9, "cluster.slow_factor": 2},
            "local, step times vary by 20.0 %, links of 10 Gbit/s, a slow",
        ),
    ],
)
def test_settings_are_told_in_words_and_those_that_are_not_known_are_not(
    findings, name, settings, words
):
    told = dict(how_it_was_run(findings([make_run(kind="paced")], settings=settings)))
    assert told[name].startswith(words)
    assert ("Evaluations" in told) == (name == "Evaluations")
    assert ("is not followed" in told["Data"]) == ("own.Data" in settings.values())


def test_nobody_says_how_much_the_steps_of_measured_runs_vary(findings):
    told = dict(how_it_was_run(findings([make_run()], settings={"cluster.step_jitter": 0})))
    assert told["Cluster"] == "local"


def test_settings_that_follow_from_the_number_of_workers_are_said_once(findings):
    runs = [make_run("sync_allreduce", 1, seed=s, **{"scheme.servers": None}) for s in (0, 1)]
    for workers in (2, 8):
        runs += [
            make_run("async_parameter_server", workers, seed=s, **{"scheme.servers": workers // 2})
            for s in (0, 1)
        ]
        runs += [make_run("mixed", workers, seed=s, **{"scheme.servers": 1}) for s in (0, 1)]
    found = findings(runs, axes=["scheme", "workers", "batch_size", "seed", "scheme.servers"])
    assert dict(how_it_was_run(found))["Servers"] == (
        f"{scheme_name('async_parameter_server')}: 1 for 2, 4 for 8 workers; "
        f"{scheme_name('mixed')}: 1"
    )
    names = {scheme_words(row) for _, row in found.concluded["decision"].iterrows()}
    assert names == set(map(scheme_name, ("sync_allreduce", "async_parameter_server", "mixed")))
    assert "scheme.servers" not in found.varying


def test_several_machines_are_told_with_the_points_that_each_made(findings):
    card = {"hardware.gpus": '["NVIDIA H200"]', "hardware.cores": 16}
    own = "A Made-up Processor, 4 cores, no GPU"
    for runs, told in (
        ([make_run(), make_run(seed=1)], own),
        (
            [make_run(), make_run(seed=1, **card), make_run(seed=2, **card)],
            f"{own}: 1 run; A Made-up Processor, 16 cores, NVIDIA H200: 2 runs",
        ),
    ):
        assert dict(how_it_was_run(findings(runs)))["Machine"] == told
