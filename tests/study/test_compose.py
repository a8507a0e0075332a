"""Configurations that are made of one another are those that Hydra composes."""

import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from paceline.study.compose import composed, composer

REPOSITORY = Path(__file__).parent.parent.parent
SHAPED = ["cluster=shaped_nodes", "cluster.link={bandwidth: 1e6, latency: 0.0}"]
JOBS = [
    ["experiments=quick", "scheme=gossip", "workers=2", "seed=0"],
    ["experiments=quick", "scheme=gossip", "workers=4", "seed=1"],
    ["experiments=quick", "scheme=independent", "workers=4", "seed=1"],
    ["experiments=quick", "scheme=gossip", "workers=4", "seed=1", "scheme.graph=ring"],
    ["experiments=quick", "scheme=gossip", "workers=2", "seed=1", "scheme.graph=complete"],
    [*SHAPED, "cluster.link.bandwidth=2e6"],
    [*SHAPED, "cluster.link.bandwidth=3e6"],
    ["cluster.link.bandwidth=3e6", *SHAPED],
    ["tuning=null", "training.rate=by_rule"],
    ["tuning={values: {training.lr: [1]}, seed: 1}", "training.rate=tuned"],
    ["+model.more=1", "training.lr=0.1"],
    ["+model.more=2", "training.lr=${training.momentum}"],
    ["+model.more=2", "training.lr=0.2"],
    ["+model.more=2", "training.lr=null"],
]


def settings(compose, job):
    return OmegaConf.to_container(compose(job).cfg, resolve=True)


@pytest.mark.parametrize("jobs", [JOBS, JOBS[::-1]], ids=["forwards", "backwards"])
def test_one_after_the_other_they_are_as_each_alone(jobs):
    with composer(REPOSITORY) as compose:
        together = [settings(compose, job) for job in jobs]
    for job, found in zip(jobs, together, strict=True):
        with composer(REPOSITORY) as compose:
            assert found == settings(compose, job)


@pytest.mark.parametrize("name", ["it's here", "with spaces", "back\\slash", 'a "quote"', "ここ"])
def test_a_project_may_lie_anywhere(name, tmp_path):
    root = tmp_path / name
    for folder in ("conf", "experiments"):
        shutil.copytree(REPOSITORY / folder, root / folder)
    assert composed(["experiments=quick"], root).study == "quick"
