"""All random numbers of whole runs, from every line of the source that draws."""

import ast
import importlib
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from paceline import random_bits
from tests.tiny import REPOSITORY, TINY, run_tiny, tiny_network, tiny_point

SOURCE = REPOSITORY / "src"
DRAWS = ("random_bits", "uniform", "normal", "random_permutation")
OF_NO_SEED = {"curve"}  # every run is scored on the same images
REPEATED = {"tiles"}  # training and test images have the same patterns
DATA = {
    "_target_": "paceline.data.synthetic.Synthetic",
    "root": "",
    "num_classes": 3,
    "image_shape": [1, 4, 4],
    "num_train": 60,
    "num_test": 12,
    "num_validation": 12,
}
CROP = {"_target_": "paceline.data.augmentation.CropAndFlip", "padding": 1, "flip": True}
RESIZED = {
    "_target_": "paceline.data.augmentation.RandomResizedCrop",
    "scale": [0.5, 1],
    "ratio": [0.2, 5],
    "flip": True,
}
LINK = {"latency": 0.1, "bandwidth": 100.0, "unevenness": 1}
RUNS = {
    "gossip": {"data": {"placement": "partitioned", "partition": "by_class", "augmentation": CROP}},
    "async_parameter_server": {"data": {"augmentation": RESIZED}, "cluster__link": LINK},
}


def dropping():
    return nn.Sequential(nn.Dropout(0.2), tiny_network())


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
            name = path.removeprefix(f"{SOURCE}/").removesuffix(".py").replace("/", ".")
            module = importlib.import_module(name)
            for name in set(DRAWS) & set(vars(module)):
                draw = getattr(random_bits, name)
                patched.setattr(module, name, recording(draw))
        for seed in (1, 2, 1):
            for scheme, settings in RUNS.items():
                config = tiny_point(
                    scheme,
                    4,
                    4,
                    cluster="virtual",
                    seed=seed,
                    training__epochs=1,
                    model__network={"_target_": "tests.test_random_streams.dropping"},
                    model__optimizer={**TINY["model"]["optimizer"], "lr": 1e-30},
                    measurement__curve_images=6,
                    cluster__step_jitter=1,
                    cluster__straggler_probability=0.5,
                    cluster__workers_per_node=1,
                    **settings,
                )
                config["data"] = {**DATA, **config["data"], "seed": seed, "split_seed": seed}
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
        assert all((initial[name] - others[name]).abs().min() > 1e-6 for name in initial)


def test_a_seed_draws_the_same_again(runs):
    for (one, initial), (again, same) in zip(runs[:2], runs[4:], strict=True):
        assert one == again
        torch.testing.assert_close(initial, same, rtol=0, atol=0)
