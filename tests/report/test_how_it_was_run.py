"""How a study was run, in words: what its tables do not say is left out."""

import pytest

from paceline.report.how_it_was_run import how_it_was_run
from paceline.report.words import scheme_words
from tests.made_reports import make_run

SAID = {
    "training.momentum": (0.9, "momentum 0.9"),
    "training.weight_decay": (0.0, "weight decay 0"),
    "training.schedule": ("cosine", "cosine schedule"),
    "training.lr_rule": ("square_root", "rate rule square root"),
    "training.ema_decay": (
        0.99,
        "a moving average of the weights with decay 0.99 is evaluated as well",
    ),
}


def optimizer(findings, **settings):
    found = findings([make_run()], settings=settings)
    return dict(how_it_was_run(found)).get("Optimizer")


def test_the_optimizer_is_told_by_its_settings(findings):
    known = {name: value for name, (value, _) in SAID.items()}
    assert optimizer(findings, **known) == ", ".join(
        ["SGD", *(words for _, words in SAID.values())]
    )


@pytest.mark.parametrize("unknown", SAID)
def test_a_setting_that_is_not_known_is_not_told(findings, unknown):
    known = {name: value for name, (value, _) in SAID.items()}
    told = ", ".join(["SGD", *(words for name, (_, words) in SAID.items() if name != unknown)])
    assert optimizer(findings, **known | {unknown: None}) == told


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


def test_data_whose_content_is_not_followed_say_so(findings):
    for digest, target, said in (
        ("", "own.Data", True),
        ("0123456789ab", "own.Data", False),
        ("", "paceline.data.synthetic.Synthetic", False),
    ):
        found = findings([make_run(data_digest=digest)], settings={"data._target_": target})
        assert ("is not followed" in dict(how_it_was_run(found))["Data"]) == said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"training.epochs": 5, "training.samples": None}, "5 epochs over all workers together"),
        ({"training.epochs": 5, "training.samples": 96000}, "96,000 images over all workers"),
        ({"training.epochs": 5}, "96,000 images over all workers"),  # samples differ by point
    ],
)
def test_the_budget_is_that_of_the_runs(findings, settings, words):
    assert dict(how_it_was_run(findings([make_run()], settings=settings)))["Budget"].startswith(
        words
    )


@pytest.mark.parametrize(
    ("number", "images", "words"),
    [
        (None, 2000, None),
        (1, 2000, "1 a run, on all validation images"),
        (50, None, "50 a run, on all validation images"),
        (50, 2000, "50 a run; all but the last on the same 2,000 validation images"),
    ],
)
def test_evaluations_say_on_which_images_they_are(findings, number, images, words):
    names = ("measurement.evaluations", "measurement.curve_images")
    settings = dict(zip(names, (number, images), strict=True))
    told = dict(how_it_was_run(findings([make_run()], settings=settings))).get("Evaluations")
    assert told == words if words is None else told.startswith(words)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workload.name": "sized", "workload.num_bytes": 10**8}, "gradients of 100 MB"),
        ({"workload.name": "resnet50"}, "gradients as of resnet50"),
        ({"workload.name": "own"}, "s a step"),
    ],
)
def test_the_cluster_says_as_what_gradients_are_sent(findings, settings, words):
    found = findings([make_run()], settings=settings | {"cluster.step_seconds": 1})
    assert dict(how_it_was_run(found))["Cluster"].endswith(words)


@pytest.mark.parametrize(
    ("factor", "said"), [(1, ""), (2, ", a slow worker takes 2 times as long")]
)
def test_the_cluster_is_told_in_words(findings, factor, said):
    cluster = {"step_jitter": 0.2, "link.bandwidth": 1.25e9, "slow_factor": factor}
    found = findings(
        [make_run()], settings={f"cluster.{name}": value for name, value in cluster.items()}
    )
    told = dict(how_it_was_run(found))["Cluster"]
    assert told == f"local, jitter 0.2, links of 10 Gbit/s{said}"


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
        "asynchronous servers: 1 for 2, 4 for 8 workers; mixed groups: 1"
    )
    names = {scheme_words(row) for _, row in found.concluded["decision"].iterrows()}
    assert names == {"all-reduce", "asynchronous servers", "mixed groups"}
    assert "scheme.servers" not in found.varying
    fixed = [run for run in runs if run["workers"] < 8]
    found = findings(fixed, axes=["scheme", "workers", "batch_size", "seed", "scheme.servers"])
    assert "Servers" not in dict(how_it_was_run(found))


def test_without_settings_nothing_is_told(findings):
    assert optimizer(findings) is None


def test_several_machines_are_told_with_the_points_that_each_made(findings):
    card = {"hardware.gpus": '["NVIDIA H200"]', "hardware.cores": 16}
    own = "A Made-up Processor, 4 cores, no GPU"
    for runs, told in (
        ([make_run(), make_run(seed=1)], own),
        (
            [make_run(), make_run(seed=1, **card), make_run(seed=2, **card)],
            f"{own}: 1 point; A Made-up Processor, 16 cores, NVIDIA H200: 2 points",
        ),
    ):
        assert dict(how_it_was_run(findings(runs)))["Machine"] == told
