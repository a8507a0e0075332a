import pytest

from paceline.report.page_tables import time_to_target
from paceline.report.target_sentences import target_origin
from tests.made_reports import make_run

ORIGINS = [
    (None, "two points of validation top-1 below the best mean of one worker (all-reduce, "),
    ({"metric": "top1", "value": 0.85}, "a validation top-1 of 85 % that the study asks for. "),
    (
        {"metric": "top1", "below_baseline": 0.03},
        "3 points of validation top-1 below the best mean of one worker (all-reduce, "
        "32 images per worker and step), as the study asks. ",
    ),
]


@pytest.mark.parametrize(("target", "origin"), ORIGINS)
def test_the_caption_says_where_the_target_comes_from(findings, target, origin):
    found = findings([make_run(top1=0.9)], target=target)
    assert f"at or above the target, {origin}" in time_to_target(found).caption
    assert target_origin(found).startswith(origin.removesuffix(". "))


def test_what_the_baseline_leaves_as_it_is_is_not_named(findings):
    link = "cluster.link.bandwidth"
    runs = [make_run(seed=s, top1=0.9, **{link: None}) for s in (0, 1)]
    runs += [make_run(workers=2, seed=s, **{link: 1e9}) for s in (0, 1)]
    axes = ["scheme", "workers", "batch_size", "seed", link]
    target = {"metric": "top1", "below_baseline": 0.03}
    origin = target_origin(findings(runs, target=target, axes=axes))
    assert "(all-reduce, 32 images per worker and step)" in origin


def test_the_baseline_is_named_in_the_readers_words(findings):
    settings = {"cluster.link.bandwidth": 1.25e9, "training.rate": "by_rule"}
    runs = [make_run(scheme="local_sgd", seed=seed, **settings) for seed in (0, 1)]
    axes = ["scheme", "workers", "batch_size", "seed", *settings]
    origin = target_origin(findings(runs, axes=axes))
    words = "local SGD, 32 images per worker and step, links of 10 Gbit/s, rate by rule"
    assert f"({words})" in origin


def test_a_baseline_of_several_processes_is_named(findings):
    shards = {"model.shards": 2}
    runs = [make_run(seed=seed, **shards) for seed in (0, 1)]
    axes = ["scheme", "workers", "batch_size", "seed", *shards]
    assert "(all-reduce, 1 worker of 2 processes, " in target_origin(findings(runs, axes=axes))


def test_a_loss_is_reached_from_above(findings):
    runs = [make_run(validation_loss=0.4)]
    table = time_to_target(findings(runs, target={"metric": "loss", "below_baseline": 0.1}))
    assert "at or below the target, 0.1 above the best mean validation loss of one" in table.caption
    table = time_to_target(findings(runs, target={"metric": "loss", "value": 0.5}))
    assert "a validation loss of 0.5 that the study asks for. " in table.caption
    table = time_to_target(findings(runs, target={"metric": "top5", "value": 0.98}))
    assert "at or above the target, a validation top-5 of 98 % that" in table.caption
