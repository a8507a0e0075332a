"""A point's key is the content of its settings, without names, paths and logging."""

import copy
from dataclasses import fields
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from paceline.data.placement import Placement
from paceline.errors import SettingError
from paceline.record.key import PointSettings, declared_settings
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.study.compose import composed
from paceline.timing.profile import Link
from tests.test_settings import leaves
from tests.tiny import REPOSITORY

CONFIG = {
    "study": "made",
    "question": None,
    "workers": 2,
    "seed": 0,
    "names": {"data": "synthetic"},
    "data": {"_target_": "paceline.data.synthetic.Synthetic", "root": "data", "split_seed": 0},
    "training": {"lr": 0.05, "milestones": [0.5]},
    "measurement": {"evaluations": 10, "mlflow": {"tracking_uri": None}},
    "sweep": {"jobs": 1, "rerun": "none"},
}


def changed(setting, value, config=CONFIG):
    config = copy.deepcopy(config)
    *parents, leaf = setting.split(".")
    holder = config
    for parent in parents:
        holder = holder[parent]
    holder[leaf] = value
    return config


@pytest.mark.parametrize("images", [0, -4, True, 2.5, "many"])
def test_images_of_all_workers_are_a_number(images):
    shared = {"global_batch_size": images, "batch_size": "${workers}", "workers": 2}
    with pytest.raises(SettingError, match=r"^global_batch_size: a whole number of at least 1 is"):
        PointConfig.of(OmegaConf.create({**CONFIG, **shared}))


def test_a_key_does_not_change_between_versions_nor_with_the_order_of_settings():
    assert PointConfig(CONFIG).folder == Path("runs/made/4cd9ceaea4ff")
    assert PointConfig(dict(reversed(CONFIG.items()))).key == "4cd9ceaea4ff"


COUNTED = "paceline.timing.workload.CountedNetwork"
WORKLOAD = {"_target_": COUNTED, "name": "nin", "layers": [["a", 3, 4, 5]]}


def test_tensors_of_a_workload_are_counted_with_its_layers_which_are_part_of_the_key():
    one, other = (
        PointConfig({**CONFIG, "workload": {**WORKLOAD, **more}}) for more in ({}, {"tensors": [1]})
    )
    assert one.key == other.key != PointConfig(CONFIG).key


def test_settings_of_the_run_are_not_those_of_the_data_sets_class():
    """An earlier record has none of them, and was made with what changes nothing."""
    neutral = {"placement": "replicated", "partition": "random", "shuffle_every": None}
    earlier = PointConfig(CONFIG)
    later = PointConfig({**CONFIG, "data": {**CONFIG["data"], **neutral, "store": None}})
    assert earlier.target("data") == later.target("data")
    assert earlier.of_the_run("data") == later.of_the_run("data")
    partitioned = changed("data.placement", "partitioned")
    assert Placement(**PointConfig(partitioned).of_the_run("data")).partitioned


def test_all_settings_of_a_point_but_those_of_its_study_are_part_of_the_key():
    own = {field.name for field in fields(Point)} - {"study", "sweep", "config", "margin"}
    assert own - {"sharding", "placement"} == declared_settings(PointSettings).keys()


CHOICES = ("cluster=virtual +cluster/queue=slurm scheme=sync_parameter_server", "cluster=dgx_a100")
NOT_IN_THE_KEY = """
cluster.assumed cluster.chip.memory cluster.chip.name cluster.engine cluster.fitted_to
cluster.queue data.root global_batch_size grids margin measurement.mlflow names predicted_by
question study sweep target training.checkpoint_seconds trial tuning validated_on
"""
NEUTRAL = """
cluster.link.unevenness cluster.overlap cluster.server_copy_bandwidth cluster.server_device
cluster.server_placement cluster.server_tensor_seconds cluster.step_rates cluster.topology
cluster.workers_per_accelerator data.partition data.placement data.shuffle_every data.store
measurement.curve_images model.shards model.split scheme.group_size scheme.sharding
training.ema_decay training.gradient_clip_algorithm training.initial_weights training.poly_power
"""


def keys_without(change):
    """The settings of conf/ that a change leaves out of the key, by the name or that of a group."""
    found = set()
    for words in CHOICES:
        values = composed(["data=synthetic", *words.split()], REPOSITORY).values
        for place, _ in leaves(values):
            inner = other = copy.deepcopy(dict(values))
            for name in place[:-1]:
                inner = inner[name]
            change(inner, place[-1])
            if PointConfig(other).key == PointConfig(values).key:
                found.add(".".join(map(str, place)))
    return found


def in_groups(settings, names):
    return {next((n for n in names if f"{each}.".startswith(f"{n}.")), each) for each in settings}


def test_what_a_point_computes_decides_its_key_and_names_paths_and_logging_do_not():
    free = keys_without(lambda group, name: group.update({name: "another"}))
    assert in_groups(free, NOT_IN_THE_KEY.split()) == {*NOT_IN_THE_KEY.split()}
    # a setting that came later keeps earlier keys where it changes nothing
    lacking = keys_without(lambda group, name: group.pop(name))
    assert lacking - free == {*NEUTRAL.split()}


@pytest.mark.parametrize("target", ["paceline.data.image_folder.ImageFolder", "mine.DataModule"])
def test_the_folder_of_images_that_are_not_verified_is_what_they_are(target):
    cats, dogs = (changed("data", {"_target_": target, "root": root}) for root in ("cats", "dogs"))
    assert PointConfig(cats).key != PointConfig(dogs).key


def test_a_bandwidth_may_be_text_and_has_the_key_of_its_number():
    settings, name = ["cluster=minsky", "workload=resnet50"], "cluster.link.bandwidth"
    number, text = (
        composed([*settings, f"{name}={value}"], REPOSITORY) for value in ("1.25e10", "100Gb/s")
    )
    assert text.key == number.key
    assert Point.of(text).cluster.profile.link.bandwidth == 1.25e10
    for same in ("100Gbit/s", "12.5GB/s", "100 Gb/s", "0.1Tb/s", "100000Mb/s"):
        assert Link(0, same).bandwidth == 1.25e10, same
    for wrong in ("100Gb", "fast", "-1Gb/s", "1e9Gb/s", "100gb/s", "0Gb/s"):
        with pytest.raises(SettingError, match=r"^cluster\.link\.bandwidth: ") as error:
            Link(0, wrong)
        assert "\n" not in str(error.value), wrong
    with pytest.raises(SettingError, match=r"bandwidth: bytes/s, or text such as 100Gb/s .*'fast'"):
        Point.of(composed([*settings, f"{name}=fast"], REPOSITORY))
