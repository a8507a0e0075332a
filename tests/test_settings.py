"""Every setting in conf/ refuses by its name what is of another kind or out of its range."""

import math
from copy import deepcopy
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

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
