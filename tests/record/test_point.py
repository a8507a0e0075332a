"""Every setting that cannot be honoured is named, before any process starts."""

import re
from copy import deepcopy
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.record.without_effect import on_cpu, without_effect
from paceline.study.compose import composed

CONF = Path(__file__).parents[2] / "conf"


def read(path):
    return OmegaConf.to_container(OmegaConf.load(CONF / f"{path}.yaml"))


def cluster_of(name):
    """Settings of a file of conf/cluster, with what it has of others."""
    return dict(composed([f"cluster={name}"], CONF.parent).values["cluster"])


@pytest.fixture(scope="session")
def defaults():
    settings = ("cluster.accelerator=cpu", "data=synthetic")
    return composed(settings, CONF.parent).values


@pytest.fixture
def config(defaults):
    return deepcopy(dict(defaults))


def check(config):
    return Point.of(PointConfig(config))


def put(config, setting, value):
    *parents, leaf = setting.split(".")
    for parent in parents:
        config = config[parent]
    assert leaf in config
    config[leaf] = value


def assert_refused_in_a_line(config, setting):
    with pytest.raises(SettingError, match=f"^{re.escape(setting)}: ") as error:
        check(config)
    assert error.value.setting == setting
    assert "\n" not in str(error.value)


BAD = [
    ("training.initial_weights", "nowhere/weights.pt"),
    ("training.milestones", [0.75, 0.5]),
    ("training.milestones", [0.5, 1.5]),
    ("training.milestones", ["half"]),
    ("scheme.collective", "rumour"),
    ("scheme.compression", "zip"),
    ("data.shuffle_every", 1),
]


def test_a_bad_value_is_named(config):
    for setting, value in BAD:
        bad = deepcopy(config)
        put(bad, setting, value)
        assert_refused_in_a_line(bad, setting)


SCHEMES = [
    ("sync_parameter_server", "scheme.backup_workers", 4),
    ("mixed", "scheme.group_size", 3),
]


@pytest.mark.parametrize(("scheme", "setting", "value"), SCHEMES)
def test_what_makes_no_scheme_for_so_many_workers_is_named(scheme, setting, value, config):
    config["scheme"] = read(f"scheme/{scheme}")
    config["workers"] = 4
    check(config)
    put(config, setting, value)
    assert_refused_in_a_line(config, setting)


@pytest.mark.parametrize("target", ["paceline.scheme.mixed.Nothing", "builtins.dict"])
def test_what_is_no_scheme_is_one_line(target, config):
    config["scheme"] = {"_target_": target}
    with pytest.raises(SettingError, match=r"^scheme(\._target_)?: [^\n]+$"):
        check(config)


@pytest.mark.parametrize(
    ("optimizer", "setting"),
    [({"momentum": 1}, "model.optimizer.momentum"), ({}, "training.momentum_correction")],
)
def test_momentum_that_cannot_be_corrected(optimizer, setting, config):
    config["training"]["momentum_correction"] = "asynchrony"
    optimizer = {"_target_": "made.Optimizer", **optimizer}
    config["model"] |= {"_target_": "made.Model", "optimizer": optimizer}
    with pytest.raises(SettingError) as error:
        check(config)
    assert error.value.setting == setting


def put_gpus(monkeypatch, number):
    for module in ("cluster.cluster", "record.without_effect"):
        monkeypatch.setattr(f"paceline.{module}.num_gpus", lambda: number)


def test_more_workers_than_gpus(config, monkeypatch):
    """They are refused if GPUs were asked for; else the CPU trains them, and a line says so."""
    put_gpus(monkeypatch, 1)
    config["cluster"]["accelerator"] = "auto"
    assert (check(config).device, on_cpu(check(config))) == ("cuda", "")
    config["workers"] = 2
    assert check(config).device == "cpu"
    said = (
        r"cluster\.accelerator: .*2 workers.*has 1; cluster\.workers_per_accelerator=N lets .* one$"
    )
    assert re.match(said, on_cpu(check(config)))
    config["cluster"]["accelerator"] = "cpu"
    assert on_cpu(check(config)) == ""
    config["cluster"]["accelerator"] = "gpu"
    with pytest.raises(SettingError, match=r"^workers: 2 workers .* has 1; .*accelerator=cpu, or"):
        check(config)
    config["cluster"]["workers_per_accelerator"] = 2
    assert check(config).device == "cuda"
    config["workers"] = 3
    with pytest.raises(SettingError, match=r"^workers: 3 workers need a GPU for each 2, .* has 1;"):
        check(config)


def test_no_gpu_is_an_error_only_where_one_is_asked_for(config, monkeypatch):
    put_gpus(monkeypatch, 0)
    config["cluster"]["accelerator"] = "auto"
    check(config)
    config["cluster"]["accelerator"] = "gpu"
    with pytest.raises(SettingError, match=r"^workers: 1 workers need a GPU each, .* has 0;"):
        check(config)


@pytest.mark.parametrize(
    ("gpus", "accelerator", "cluster", "wished", "found"),
    [
        (1, "gpu", "local", "auto", "cuda"),
        (1, "gpu", "local", "cuda", "cuda"),
        (1, "gpu", "local", "cpu", "cpu"),
        (1, "cpu", "local", "auto", "cpu"),
        (0, "auto", "local", "auto", "cpu"),
        (0, "auto", "local", "cuda", "this machine has no GPU"),
        (1, "cpu", "local", "cuda", "the workers compute on the CPU"),
        (1, "gpu", "agents", "auto", "cpu"),
        (1, "gpu", "agents", "cuda", "workers and servers share GPUs inside one machine only"),
        (1, "gpu", "local", "tpu", "should be 'auto', 'cpu' or 'cuda', not 'tpu'"),
    ],
)
def test_where_servers_have_their_weights(
    gpus, accelerator, cluster, wished, found, config, monkeypatch
):
    put_gpus(monkeypatch, gpus)
    config["scheme"] = read("scheme/async_parameter_server")
    config["cluster"] = cluster_of(cluster)
    if cluster == "agents":
        config["cluster"] |= {"nodes": 2, "server_placement": "own_nodes"}
    config["cluster"] |= {"accelerator": accelerator, "server_device": wished}
    if found in ("cpu", "cuda"):
        assert check(config).server_device == found
        return
    rest = "" if wished == "tpu" else "; cpu is needed, not cuda"
    with pytest.raises(SettingError, match=rf"^cluster\.server_device: {found}{rest}$"):
        check(config)


@pytest.mark.parametrize(
    ("gpus", "scheme", "settings", "found"),
    [
        (1, "sync_allreduce", {}, []),
        (1, "sync_allreduce", {"workers_per_accelerator": 2}, []),
        (1, "sync_allreduce", {"server_device": "cpu"}, ["server_device"]),
        (1, "async_parameter_server", {"server_device": "cpu"}, []),
        (0, "async_parameter_server", {"server_device": "cpu"}, []),
        (0, "sync_allreduce", {"workers_per_accelerator": 2}, ["workers_per_accelerator"]),
    ],
)
def test_settings_of_gpus_without_effect(gpus, scheme, settings, found, config, monkeypatch):
    put_gpus(monkeypatch, gpus)
    config["scheme"], config["names"]["scheme"] = read(f"scheme/{scheme}"), scheme
    config["cluster"] |= {"accelerator": "auto", **settings}
    lines = [each.split(":")[0] for each in without_effect(check(config))]
    assert lines == [f"cluster.{name}" for name in found]


@pytest.mark.parametrize("precision", ["16-mixed", "16-true", "bf16-true"])
def test_precisions_that_a_server_cannot_honour_name_the_scheme(precision, config, monkeypatch):
    put_gpus(monkeypatch, 2)
    config["cluster"]["accelerator"] = "gpu"
    config["training"]["precision"] = precision
    check(config)
    config["scheme"] = read("scheme/async_parameter_server")
    config["names"]["scheme"] = "async_parameter_server"
    with pytest.raises(SettingError, match=r"^training\.precision: .*async_parameter_server"):
        check(config)


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("scheme.group_size", 2, "scheme.overlap"),
        ("training.gradient_clip_val", 1, "training.gradient_clip_val"),
    ],
)
def test_what_is_known_after_backward_only_does_not_leave_during_it(setting, value, named, config):
    config["scheme"] = read("scheme/async_parameter_server") | {"overlap": True}
    config["workers"] = 2
    check(config)
    put(config, setting, value)
    assert_refused_in_a_line(config, named)


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_clipping_is_refused_where_it_is_not_of_what_is_applied(algorithm, config):
    config["training"] |= {"gradient_clip_val": 1, "gradient_clip_algorithm": algorithm}
    config["workers"] = 2
    check(config)  # DDP clips the mean
    config["cluster"] = cluster_of("virtual") | {"accelerator": "cpu"}
    with pytest.raises(SettingError, match=r"^training\.gradient_clip_val: .* SyncAllReduce "):
        check(config)
    config["workers"] = 1
    check(config)


def test_checkpoints_are_refused_to_real_processes_that_cannot_stop(config):
    config["workers"] = 3
    config["scheme"]["compression"] = "power_sgd"
    check(config)
    config["training"]["checkpoint_seconds"] = 60
    with pytest.raises(SettingError, match=r"^training\.checkpoint_seconds: [^\n]*null is needed$"):
        check(config)
    config["scheme"]["compression"] = "none"
    config["cluster"] = cluster_of("virtual") | {"accelerator": "cpu", "step_seconds": 1}
    check(config)


MODELLED = [
    ("cluster.step_seconds", None),
    ("scheme.collective", "rumour"),
    ("scheme.compression", "zip"),
    ("training.precision", "bf16-true"),
]


@pytest.mark.parametrize(("setting", "value"), MODELLED)
def test_what_a_virtual_cluster_cannot_be_is_named(setting, value, config):
    config["cluster"] = cluster_of("virtual") | {"accelerator": "cpu"}
    config["scheme"]["collective"] = "ring"
    config["workers"] = 4096  # of one process
    check(config)
    put(config, setting, value)
    with pytest.raises(SettingError) as error:
        check(config)
    assert error.value.setting == setting


@pytest.mark.parametrize(
    ("cluster", "changes", "expected"),
    [
        ("local", {}, "measured"),
        ("local", {"step_seconds": 0.1}, "paced"),
        ("local", {"server_seconds": 0.1}, "paced"),
        ("virtual", {}, "virtual"),
    ],
)
def test_kinds_of_numbers(cluster, changes, expected, config):
    config["cluster"] = cluster_of(cluster) | {"accelerator": "cpu"} | changes
    assert check(config).kind == expected
