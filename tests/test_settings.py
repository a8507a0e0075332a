"""Every setting in conf/ refuses by its name what is of another kind or out of its range.

Commands that cannot do what they ask say so in a line, before data are read.
"""

import math
import shlex
import sys
from copy import deepcopy
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import cli
from paceline.data.placement import Placement
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.study.compose import composed
from tests.tiny import CONF, REPOSITORY

CLUSTERS = "dgx_a100 in_process local shaped_nodes slurm titan two_cores_paced virtual"
CHOICES = [
    *(("scheme", path.stem) for path in sorted((CONF / "scheme").glob("*.yaml"))),
    *(("cluster", name) for name in CLUSTERS.split()),
]
PARTS = ("training", "measurement", "sweep", "scheme", "cluster", "workload", "data")
PLAIN = ("workers", "batch_size", "seed", "save_weights", "margin")
ANY_TEXT = {
    *("training.initial_weights", "measurement.mlflow.experiment", "data.root", "workload.name"),
    *("measurement.mlflow.tracking_uri", "cluster.account", "cluster.partition"),
    *("cluster.chip.name", "scheme.collective"),  # some checked by the point
}
# by the last words of their names
MAY_BE_0 = """
16-mixed 32-true allreduce_seconds backup_workers bf16-mixed bound compensation ddp_seconds
elasticity ema_decay evaluations fixed latency message_seconds momentum num_validation
outer_momentum push_seconds rank seed server_seconds server_tensor_seconds slow_workers
split_seed step_jitter straggler_probability switch_at unevenness
warmup_epochs warmup_fraction weight_decay
"""
MAY_BE_NULL = """
account augmentation bandwidth checkpoint_seconds curve_images ema_decay gradient_clip_val
initial_weights memory_gb node_cores partition rank samples server_bandwidth server_copy_bandwidth
shuffle_every step_seconds store workers_per_node
"""
TOO_MUCH = {
    "seed": 2**32,
    "training.momentum": 1,
    "training.gamma": 1.1,
    "training.ema_decay": 1,
    "training.warmup_epochs": 99,
    "measurement.warmup_fraction": 0.5,
    "scheme.outer_momentum": 1,
    "scheme.elasticity": 1,
    "scheme.switch_at": 1.1,
    "cluster.timeout_seconds": 1e300,
    "cluster.step_jitter": 1.6,
    "cluster.straggler_probability": 1.1,
    "cluster.link.unevenness": 2.1,
}


@cache
def declared():
    """Of each setting: its place, its value, and the settings of a point that has it."""
    found = {}
    for group, name in CHOICES:
        workload = "own" if group == "scheme" else "nin"  # which has a time on each cluster
        asked = ("data=synthetic", f"workload={workload}", f"{group}={name}")
        values = composed(asked, REPOSITORY).values
        for place, value in leaves({part: values[part] for part in (*PARTS, *PLAIN)}):
            owner = values[place[0]]["_target_"] if place[0] in PARTS else ""
            setting = ".".join(part for part in place if isinstance(part, str))
            found.setdefault((owner, setting), (place, value, values))
    return {where: each for where, each in found.items() if "_target_" not in where[1]}


def leaves(tree, above=()):
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


def refusal(place, bad, values):
    """Return the setting that is refused if a value is put there; None if it is taken."""
    inner = values = {**values, place[0]: deepcopy(values[place[0]])}
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = bad
    config = PointConfig(values)
    try:
        if place[0] in PLAIN:
            Point.of(config)
        elif place[0] == "data":
            Placement(**config.of_the_run("data"))
        if place[0] in PARTS:
            config.target(place[0]).build()
    except SettingError as error:
        return error.setting if "\n" not in str(error) else str(error)
    return None


def wrongly_taken(bad):
    """Return the settings that take a value, or whose refusal has another name, with this name."""
    found = {}
    for (_, setting), (place, value, values) in declared().items():
        is_flag = isinstance(value, bool) or setting == "cluster.overlap"
        is_free = setting in ANY_TEXT if isinstance(bad, str) else is_flag and bad is True
        no_limit = bad == math.inf and "bandwidth" in setting
        named = refusal(place, bad, values)
        if named != setting and not (is_free or no_limit):
            found[setting] = named
    return found


def taken(value):
    """Return the last words of the names of all numbers that a value can replace."""
    return {
        setting.rpartition(".")[2]
        for (_, setting), (place, number, values) in declared().items()
        if isinstance(number, int | float | None) and not refusal(place, value, values)
    }


BAD = st.one_of(
    st.floats(max_value=0, exclude_max=True),
    st.integers(max_value=-1),
    st.sampled_from([math.nan, math.inf, True, "2", "a word", [object()]]),
)


@settings(max_examples=30, derandomize=True, database=None, deadline=None)
@given(BAD)
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_setting(bad):
    assert wrongly_taken(bad) == {}


def test_zero_and_null_are_taken_where_they_mean_something():
    assert taken(0) == {*MAY_BE_0.split()}
    assert taken(None) == {*MAY_BE_NULL.split()}


def test_more_than_the_most_is_refused():
    places = {setting: rest for (_, setting), rest in declared().items()}
    for setting, bad in TOO_MUCH.items():
        place, _, values = places[setting]
        assert refusal(place, bad, values) == setting, setting


UNLOGGED = "measurement.mlflow.tracking_uri=null"
OF_SYNTHETIC = "train data=synthetic data.image_shape=[1,8,8]"
SERVED = "train scheme=async_parameter_server workers=2"
REFUSED = {
    # words that are no settings
    "train =5": "settings",
    "train ==": "settings",
    "train hydra.run.dir=/proc/x": "hydra.run.dir",
    "train experiments=5": "experiments",
    "train +data=5": "data",
    "train wrokers=2": "wrokers",
    "train +unheard=1": "unheard",
    "train ++unheard=1": "unheard",
    "train +training.unheard=1": "training.unheard",
    "train scheme=telepathy": "scheme",
    "train -m study=quick seed=0,1": "study",  # of which there is a file
    "train study=../bad": "study",
    "train study=glob(*)": "study",
    "train -m seed=glob(*)": "seed",
    "sweep quick seed=glob(*)": "seed",
    f"sweep {'x' * 300}": "study",
    f"report {'x' * 300}": "study",
    "sweep quick tuning=5 training.rate=tuned": "tuning",
    # types
    "train workers=0": "workers",
    "train workers=-1 cluster=virtual cluster.slow_workers=1": "workers",
    f"{OF_SYNTHETIC} data.num_train=abc": "data.num_train",
    "train data.image_shape=[28,28]": "data.image_shape",
    # what cannot be meant
    "train workers=4096 cluster.accelerator=gpu": "workers",
    "train scheme=mixed workers=2 training.gradient_clip_val=1": "training.gradient_clip_val",
    f"{SERVED} data.placement=partitioned data.shuffle_every=1": "data.shuffle_every",
    "train training.lr=1e-320": "training.lr",
    "train cluster.step_seconds=1e9": "cluster.step_seconds",
    "train cluster.step_seconds=100 cluster.slow_workers=1 cluster.slow_factor=6": (
        "cluster.step_seconds"
    ),
    "train training.samples=1": "training.samples",
    "train scheme=elastic_averaging workers=2 scheme.period=999999999": "scheme.period",
    # what the data or the network do not have
    "train data.num_validation=60000": "data.num_validation",
    "train data.num_validation=0": "data.num_validation",
    "train data.image_shape=[3,7,7]": "data.image_shape",
    "train data=cifar10 data.image_shape=[3,7,7]": "data.image_shape",
    "train data=fashion_mnist_subset data.store=decoded_each_time": "data.store",
    f"{OF_SYNTHETIC} batch_size=2001 workers=2": "batch_size",
    f"{OF_SYNTHETIC} batch_size=2000 workers=4 data.placement=partitioned": "batch_size",
    "train model.optimizer._target_=torch.optim.Adam": "model.optimizer.momentum",
    "train model/optimizer=adam +model.optimizer.nesterov=true": "model.optimizer.nesterov",
    "train model.optimizer._target_=torch.optim.Adma": "model.optimizer._target_",
}
CAUTIONED = {
    "train cluster.slow_factor=4": "cluster.slow_factor",
    "train cluster.step_seconds=1 cluster.slow_workers=1": "cluster.slow_workers",
    "train cluster.straggler_factor=4": "cluster.straggler_factor",
    "train cluster=virtual cluster.straggler_probability=0.1": "cluster.straggler_probability",
    "train cluster.slow_workers=1 cluster.slow_factor=4": "cluster.slow_workers",
    "train cluster.step_jitter=0.1": "cluster.step_jitter",
    "train cluster=virtual cluster.step_seconds={7:1.0} batch_size=10": "cluster.step_seconds",
    "train training.warmup_epochs=1": "training.warmup_epochs",
}
GOOD = [
    "train workers=2 cluster.step_seconds=1 cluster.slow_workers=1 cluster.slow_factor=4",
    "train cluster=virtual cluster.step_jitter=0.2 training.momentum=0.99 training.lr=1",
    "train cluster=virtual cluster.step_seconds={8:0.1,64:0.8}",
    f"{OF_SYNTHETIC} scheme=local_sgd workers=2 scheme.period=312",
    "train model/optimizer=adam training.samples=32",
]


class DataAreRead(BaseException):
    """No longer only the settings are looked at."""


@pytest.fixture
def command(root, monkeypatch, capfd):
    """Run a command until it reads data; return its exit code and the lines of its stderr."""

    def read(*_):
        raise DataAreRead

    def run(words):
        monkeypatch.chdir(root)
        given = shlex.split(words)
        given += [UNLOGGED] if given[0] == "train" else []
        monkeypatch.setattr(sys, "argv", ["paceline", *given])
        capfd.readouterr()
        code = None
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        except DataAreRead:
            pass
        return code, capfd.readouterr().err.splitlines()

    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("paceline.run.run_point.prepare_data", read)
    return run


def test_what_cannot_be_done_is_refused_in_one_line_before_data_are_read(command):
    found = {words: command(words) for words in REFUSED}
    named = {
        words: lines[0].removeprefix("paceline: ").partition(":")[0]
        if code == 2 and len(lines) == 1
        else (code, lines)
        for words, (code, lines) in found.items()
    }
    assert named == REFUSED


def test_what_has_no_effect_is_said_in_one_line(command):
    found = {words: command(words) for words in CAUTIONED}
    named = {words: [line.split(": ")[1] for line in lines] for words, (_, lines) in found.items()}
    assert named == {words: [setting] for words, setting in CAUTIONED.items()}
    assert {code for code, _ in found.values()} == {None}


def test_what_is_right_begins_without_a_word(command):
    assert [command(words) for words in GOOD] == [(None, [])] * len(GOOD)
