"""All random numbers of whole runs, from every line of the source that draws."""

import ast
import importlib
import sys
from collections import Counter

import numpy as np
import pytest
import torch

from paceline import random_bits
from paceline.study.compose import composed
from tests.tiny import REPOSITORY, run_tiny

SOURCE = REPOSITORY / "src"
DRAWS = ("random_bits", "uniform", "normal", "random_permutation")
OF_NO_SEED = {"curve"}  # every run is scored on the same images
REPEATED = {"tiles"}  # training and test images have the same patterns
POINT = (  # whose engine is compared with no other, for which batches would be drawn again
    "cluster=virtual cluster.engine=one_by_one workers=4 batch_size=4 training.epochs=1 "
    "training.lr=1e-30 save_weights=true model=small_alexnet data=synthetic "
    "data.image_shape=[1,8,8] data.num_train=60 data.num_test=12 data.num_validation=12 "
    "measurement.curve_images=6 measurement.mlflow.tracking_uri=null cluster.step_jitter=1 "
    "cluster.straggler_probability=0.5 cluster.workers_per_node=1 "
)
RUNS = (
    "scheme=gossip +data/augmentation=crop_and_flip "
    "data.placement=partitioned data.partition=by_class",
    "scheme=async_parameter_server +data/augmentation=random_resized_crop "
    "cluster.link.bandwidth=1e6 cluster.link.unevenness=1",
)


def lines_that_draw():
    """Return the file and the line, from 1, of each call of the source that draws."""
    return {
        (str(path), node.lineno)
        for path in SOURCE.rglob("paceline/**/*.py")
        if "random_bits" in path.read_text() and path.name != "random_bits.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in DRAWS
    }


@pytest.fixture(scope="module")
def lines():
    """The lines that have drawn."""
    return set()


@pytest.fixture(scope="module")
def runs(lines, tmp_path_factory):
    """For two seeds, and the first again, each in the place of every seed of a point: how often
    each run draws each number, by the key of its stream and its place there, and its weights. These
    are the initial ones, as the rate is next to nothing.
    """
    found = []

    def recording(draw):
        def record(places, *key):
            caller = sys._getframe(1)
            lines.add((caller.f_code.co_filename, caller.f_lineno))
            drawn = np.arange(places) if draw is random_bits.random_permutation else places
            found[-1][0].update((key, place) for place in np.atleast_1d(drawn).tolist())
            return draw(places, *key)

        return record

    with pytest.MonkeyPatch.context() as patched:
        for path, _ in lines_that_draw():
            dotted = path.removeprefix(f"{SOURCE}/").removesuffix(".py").replace("/", ".")
            module = importlib.import_module(dotted)
            for name in set(DRAWS) & set(vars(module)):
                patched.setattr(module, name, recording(getattr(random_bits, name)))
        for seed in (1, 2, 1):
            seeds = f"seed={seed} data.seed={seed} data.split_seed={seed}"
            for each in RUNS:
                config = composed(f"{POINT} {seeds} {each}".split(), REPOSITORY).values
                found.append((Counter(), {}))
                found[-1][1].update(run_tiny(config, tmp_path_factory.mktemp("run"))[1])
    return found


def names(drawn):
    return {key[0] for key, _ in drawn}


def test_every_line_that_draws_is_tried(runs, lines):
    assert lines == lines_that_draw()


def test_no_number_is_drawn_for_two_purposes_workers_steps_or_tries(runs):
    for numbers, _ in runs:
        assert names(each for each, times in numbers.items() if times > 1) <= REPEATED


def test_two_seeds_have_no_number_in_common_and_begin_with_other_weights(runs):
    for (one, initial), (other, others) in zip(runs[:2], runs[2:4], strict=True):
        assert names(one.keys() & other.keys()) <= OF_NO_SEED
        assert not any(torch.equal(initial[name], others[name]) for name in initial)


def test_a_seed_draws_the_same_again(runs):
    for (one, initial), (again, same) in zip(runs[:2], runs[4:], strict=True):
        assert one == again
        torch.testing.assert_close(initial, same, rtol=0, atol=0)
