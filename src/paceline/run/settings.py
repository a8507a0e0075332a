"""Checks of a point's settings, before any process starts."""

import re
from numbers import Real
from typing import Any

from paceline.cluster.accelerator import choose
from paceline.engine.clipping import check_clipping
from paceline.engine.served_weights import SERVED_PRECISIONS
from paceline.errors import SettingError
from paceline.exchange.compression import check_compression
from paceline.exchange.find_collective import collective
from paceline.model.learning_rate import LearningRate
from paceline.model.momentum import corrected_momentum
from paceline.record.point import is_virtual, num_workers
from paceline.run.corrections import check_corrections
from paceline.run.scheme_of import scheme_of
from paceline.scheme.rule import AbstractScheme
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.timing.profile import profile_of
from paceline.timing.step_times import step_times

CLOCKS = ("wall", "virtual")
MOMENTUM_CORRECTIONS = ("none", "asynchrony")
PRECISIONS = ("32-true", "64-true", "16-mixed", "bf16-mixed", "16-true", "bf16-true")


def check(config: dict[str, Any]) -> None:
    """Raises SettingError for the first setting that cannot be honoured, by its name."""
    study = config["study"]
    if not isinstance(study, str) or not re.fullmatch(r"\w[\w.-]*", study):
        raise SettingError("study", f"{study!r} cannot be the name of a folder in runs/")
    for setting in ("workers", "batch_size", "measurement.evaluations", "sweep.jobs"):
        _whole(config, setting, at_least=1)
    for setting in ("measurement.evaluation_batch_size", "cluster.threads_per_worker"):
        _whole(config, setting, at_least=1)
    _whole(config, "seed", at_least=0)
    for setting in ("training.epochs", "training.lr", "cluster.timeout_seconds"):
        _number(config, setting, above=0)
    for setting in ("training.lr_reference_batch_size", "training.gamma"):
        _number(config, setting, above=0)
    for setting in ("training.momentum", "training.weight_decay", "training.warmup_epochs"):
        _number(config, setting)
    _momentum_correction(config)
    check_corrections(config)
    _number(config, "measurement.warmup_fraction", below=1)
    for setting in ("training.samples", "training.gradient_clip_val"):
        if _value(config, setting) is not None:
            _number(config, setting, above=0)
    milestones = _value(config, "training.milestones")
    if not isinstance(milestones, list) or not all(isinstance(m, Real) for m in milestones):
        raise SettingError("training.milestones", f"numbers in [] are needed, not {milestones!r}")
    _clipping(config, scheme_of(config))
    _cluster(config)
    device = choose(config["cluster"]["accelerator"], num_workers(config))
    _precision(config, device)
    learning_rate(config, images_per_update=1, epoch=1, samples=1)


def learning_rate(
    config: dict[str, Any],
    *,
    images_per_update: int,
    epoch: int,
    samples: int,
    images_meanwhile: float = 0,
) -> LearningRate:
    """The rate by `training`'s settings. `epoch`: training images; `samples`: the budget."""
    training = config["training"]
    return LearningRate(
        rule=training["lr_rule"],
        update_batch_size=images_per_update,
        reference_batch_size=training["lr_reference_batch_size"],
        warmup_samples=round(training["warmup_epochs"] * epoch),
        schedule=training["schedule"],
        total_samples=samples,
        milestones=tuple(training["milestones"]),
        gamma=training["gamma"],
        images_meanwhile=images_meanwhile,
    )


def model(config: dict[str, Any], staleness: float) -> dict[str, Any]:
    """What builds the module, where pushes are so stale on average [updates]."""
    model = config["model"]
    if config["training"]["momentum_correction"] == "none":
        return model
    momentum = corrected_momentum(model["optimizer"]["momentum"], staleness)
    return model | {"optimizer": model["optimizer"] | {"momentum": momentum}}


def _momentum_correction(config: dict[str, Any]) -> None:
    setting, value = "training.momentum_correction", config["training"]["momentum_correction"]
    if value not in MOMENTUM_CORRECTIONS:
        known = ", ".join(MOMENTUM_CORRECTIONS)
        raise SettingError(setting, f"there is no {value!r}; there are: {known}")
    if value == "none":
        return
    if "momentum" not in config["model"].get("optimizer", {}):
        raise SettingError(setting, "the model has no model.optimizer.momentum")
    _number(config, "model.optimizer.momentum", below=1)


def _cluster(config: dict[str, Any]) -> None:
    """Its clock, the emulated accelerator, and what a virtual cluster is made of."""
    cluster, chosen = config["cluster"], config["scheme"].get("collective", "native")
    if cluster["clock"] not in CLOCKS:
        message = f"{cluster['clock']!r}; there are: {', '.join(CLOCKS)}"
        raise SettingError("cluster.clock", message)
    _number(config, "cluster.server_seconds")
    times = step_times(config)
    if is_virtual(config):
        profile_of(cluster)
        if times is None:
            raise SettingError("cluster.step_seconds", "the virtual clock needs a value")
    collective(chosen)
    _compression(config, chosen)


def _compression(config: dict[str, Any], chosen: str) -> None:
    compression = config["scheme"].get("compression", "none")
    check_compression(compression, chosen)
    if compression != "none" and is_virtual(config):
        raise SettingError("scheme.compression", f"{compression} has no virtual form")


def _clipping(config: dict[str, Any], scheme: AbstractScheme) -> None:
    """On real processes DDP carries out sync_allreduce, and clips the mean."""
    if is_virtual(config) or not isinstance(scheme, SyncAllReduce):
        check_clipping(config["training"]["gradient_clip_val"], scheme, config["workers"])


def _precision(config: dict[str, Any], device: str) -> None:
    precision = config["training"]["precision"]
    served = config["scheme"].get("servers", 0) > 0 or is_virtual(config)
    choices = SERVED_PRECISIONS if served else PRECISIONS
    if precision not in choices:
        by = f" for scheme={config['names']['scheme']}" if served else ""
        message = f"{precision!r} cannot be honoured{by}; there are: {', '.join(choices)}"
        raise SettingError("training.precision", message)
    if precision == "16-mixed" and device == "cpu":
        raise SettingError("training.precision", "16-mixed needs a GPU; bf16-mixed does not")


def _value(config: dict[str, Any], setting: str) -> Any:
    value: Any = config
    for name in setting.split("."):
        value = value[name]
    return value


def _whole(config: dict[str, Any], setting: str, *, at_least: int) -> None:
    value = _value(config, setting)
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise SettingError(
            setting, f"a whole number of at least {at_least} is needed, not {value!r}"
        )


def _number(
    config: dict[str, Any], setting: str, *, above: float | None = None, below: float = float("inf")
) -> None:
    value = _value(config, setting)
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not value < below or (value <= above if above is not None else value < 0):
        least = f"above {above}" if above is not None else "at least 0"
        most = f" and below {below}" if below != float("inf") else ""
        raise SettingError(setting, f"a number {least}{most} is needed, not {value!r}")
