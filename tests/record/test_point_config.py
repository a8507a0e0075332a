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


EARLIER = {
    **CONFIG,
    "cluster": {"_target_": "paceline.cluster.virtual.VirtualCluster", "link": {"latency": 0}},
    "scheme": {"_target_": "paceline.scheme.async_parameter_server.AsyncParameterServer"},
    "training": {**CONFIG["training"], "_target_": "paceline.record.training.Training"},
}
LATER = {
    "workload": {"_target_": "paceline.timing.workload.OwnNetwork", "name": "own"},
    "cluster": {
        **EARLIER["cluster"],
        "overlap": True,
        "server_placement": "own_nodes",
        "step_rates": {},
        "link": {"latency": 0, "unevenness": 0},
    },
    "scheme": {**EARLIER["scheme"], "group_size": 1, "sharding": "bytes"},
    "training": {
        **EARLIER["training"],
        "poly_power": 0.5,
        "gradient_clip_algorithm": "norm",
        "ema_decay": None,
        "initial_weights": None,
    },
    "data": {
        **CONFIG["data"],
        "placement": "replicated",
        "partition": "random",
        "shuffle_every": None,
        "store": None,
    },
    "measurement": {**CONFIG["measurement"], "curve_images": None},
}


def test_a_setting_that_came_later_keeps_earlier_keys_where_it_changes_nothing():
    assert PointConfig(EARLIER).key == PointConfig({**EARLIER, **LATER}).key


def test_tensors_of_a_workload_are_counted_with_its_layers_which_are_part_of_the_key():
    counted = {"_target_": COUNTED, "name": "nin", "layers": [["a", 3, 4, 5]]}
    with_tensors = PointConfig({**CONFIG, "workload": {**counted, "tensors": [1, 2]}})
    assert with_tensors.key == PointConfig({**CONFIG, "workload": counted}).key


def test_settings_of_the_run_are_not_those_of_the_data_sets_class():
    """An earlier record has none of them, and was made with what changes nothing."""
    earlier, later = PointConfig(CONFIG), PointConfig({**CONFIG, **LATER})
    assert earlier.target("data") == later.target("data")
    assert earlier.of_the_run("data") == later.of_the_run("data")
    partitioned = changed("data.placement", "partitioned")
    assert Placement(**PointConfig(partitioned).of_the_run("data")).partitioned


def test_all_settings_of_a_point_but_those_of_its_study_are_part_of_the_key():
    own = {field.name for field in fields(Point)} - {"study", "sweep", "config", "margin"}
    assert own - {"sharding", "placement"} == declared_settings(PointSettings).keys()


COUNTED = "paceline.timing.workload.CountedNetwork"
DECISIVE = [
    ("workers", 4),
    ("seed", 1),
    ("save_weights", True),
    ("workload", {"_target_": COUNTED, "name": "nin"}),
    ("data.split_seed", 1),
    ("data.placement", "partitioned"),
    ("data.shuffle_every", 1),
    ("data.store", "memory"),
    ("cluster.overlap", False),
    ("cluster.server_placement", "beside_workers"),
    ("cluster.link.unevenness", 0.5),
    ("cluster.step_rates", {"nin": {"fixed": 0}}),
    ("scheme.group_size", 2),
    ("scheme.sharding", "round_robin"),
    ("measurement.evaluations", 5),
    ("measurement.curve_images", 2000),
    ("training.lr", 0.1),
    ("training.rate", "tuned"),
    ("training.milestones", [0.75]),
    ("training.momentum", 0.9),
    ("training.poly_power", 1),
    ("training.gradient_clip_algorithm", "value"),
    ("training.ema_decay", 0.999),
    ("training.initial_weights", "runs/made/0123456789ab/weights.pt"),
]
OF_THE_STUDY = [
    ("study", "other"),
    ("question", "Why?"),
    ("names", {"data": "renamed"}),
    ("experiments", {}),
    ("data.root", "/elsewhere"),
    ("measurement.mlflow", {"tracking_uri": "http://server", "experiment": "e"}),
    ("sweep", {"jobs": 2, "rerun": "all"}),
    ("tuning", {"rounds": 1, "seed": 100}),
    ("trial", {"lr": 0.1, "momentum": 0.9, "seed": 100}),
    ("margin", 3),
    ("target", {"metric": "top1", "value": 0.85}),
]


def test_what_a_point_computes_decides_its_key_and_names_paths_and_logging_do_not():
    config = {**EARLIER, **LATER}
    before = copy.deepcopy(config)
    for setting, value in DECISIVE:
        assert PointConfig(changed(setting, value, config)).key != PointConfig(config).key, setting
    for setting, value in OF_THE_STUDY:
        assert PointConfig(changed(setting, value, config)).key == PointConfig(config).key, setting
    assert before == config


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
