"""Settings of a point (one training run) as plain values, as Hydra composed them from YAML.

The class Point, whose parts are typed and checked objects, is built from them.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from paceline.data.placement import Placement
from paceline.errors import SettingError
from paceline.model.network_size import Sharding
from paceline.record.key import key_of, neutral_values, without_retired
from paceline.record.measurement import Measurement
from paceline.record.provenance import num_cores
from paceline.record.rerun import Sweep
from paceline.record.target import Target
from paceline.settings import in_bytes_per_second

_STUDY_NAME = r"\w[\w .-]{0,99}"  # also the name of a folder in runs/
_METRICS = ("top1", "top5", "loss")  # on the validation set
_DISTANCES = ("value", "below_baseline")
# Settings in a group that are not passed to the class of the group.
_OF_THE_RUN: dict[str, type] = {"model": Sharding, "data": Placement}


@dataclass(frozen=True)
class PointConfig:
    """Plain settings of a point, from which `record/point.py` builds the typed point.

    `of_record`: True if they were read from a record; see Target. Settings that are gone are then
    left out.
    """

    values: Mapping[str, Any]
    of_record: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.of_record:
            object.__setattr__(self, "values", without_retired(self.values))

    @classmethod
    def of(cls, cfg: DictConfig) -> "PointConfig":
        """Return the resolved settings of a composed configuration, without Hydra's own settings.

        Raises SettingError for an invalid study, question or global_batch_size.
        """
        _check_batches(cfg)
        plain = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
        values = cast("Mapping[object, Any]", plain)  # a DictConfig is never a list or a string
        config = cls(
            {str(name): _in_bytes(value) for name, value in values.items() if name != "hydra"}
        )
        study, question = config.values["study"], config.values["question"]
        if not isinstance(study, str) or not re.fullmatch(_STUDY_NAME, study):
            message = "a name of at most 100 letters, digits, spaces, dots and dashes is needed"
            raise SettingError("study", f"{message}, not {study!r}")
        if question is not None and not isinstance(question, str):
            raise SettingError("question", f"text is needed, not {question!r}")
        return config._with_jobs()

    @cached_property
    def key(self) -> str:
        """Digest of the settings that decide what is computed: 12 hexadecimal digits."""
        return key_of(self.values)

    @property
    def folder(self) -> Path:
        """Folder of this point's record, which may not exist yet: `runs/<study>/<key>`."""
        return Path("runs") / self.study / self.key

    @property
    def study(self) -> str:
        return self.values["study"]

    @property
    def question(self) -> str | None:
        return self.values["question"]

    @property
    def names(self) -> dict[str, str]:
        """Names of the chosen files in conf/ for data, model, scheme and cluster."""
        return self.values["names"]

    @property
    def seed(self) -> int:
        return self.values["seed"]

    @property
    def lr(self) -> float | None:
        """Base learning rate; None before the study's tuning has chosen it."""
        return self.values["training"]["lr"]

    @property
    def margin(self) -> float:
        """Largest difference of two accuracies [percentage points] that the study calls equal."""
        return float(self.values["margin"])

    @property
    def asked_target(self) -> Mapping[str, Any] | None:
        return asked_target(self.values["target"])

    @property
    def is_tuned(self) -> bool:
        return self.values["training"]["rate"] == "tuned"

    @property
    def sweep(self) -> Sweep:
        return self.target("sweep").build_as(Sweep)

    @property
    def measurement(self) -> Measurement:
        return self.target("measurement").build_as(Measurement)

    def target(self, group: str) -> Target:
        """Return the settings of a group of conf/ from which an object of a class is built."""
        of_the_run = neutral_values(_OF_THE_RUN[group]) if group in _OF_THE_RUN else ()
        values = self.values[group]
        own = {name: values[name] for name in values if name not in of_the_run}
        return Target(group, own, self.of_record)

    @property
    def files_of_model(self) -> list[Any]:
        """Settings of a user's model, and the initial weights, which may name files."""
        model, initial = self.target("model"), self.values["training"].get("initial_weights")
        return [*([] if model.is_ours else [dict(model.values)]), *([initial] if initial else [])]

    def of_the_run(self, group: str) -> dict[str, Any]:
        """Return those settings of the group `model` or `data` that its class does not get.

        They describe how a run uses the object, such as `model.shards`. A setting that an older
        record lacks has its neutral value.
        """
        neutral = neutral_values(_OF_THE_RUN[group]).items()
        return {name: self.values[group].get(name, value) for name, value in neutral}

    def _with_jobs(self) -> "PointConfig":
        """Return the settings with a number in place of sweep.jobs=auto."""
        sweep = self.values["sweep"]
        if sweep["jobs"] != "auto":
            return self
        return self.replaced(sweep={**sweep, "jobs": jobs_for(self.values["cluster"])})

    def replaced(self, **values: Any) -> "PointConfig":
        """Return a copy in which these top-level settings have other values."""
        return replace(self, values={**self.values, **values})


def is_virtual(cluster: Any) -> bool:
    """Return whether the settings of a cluster are those of a virtual one."""
    values = cast("Mapping[str, Any]", cluster if isinstance(cluster, Mapping) else {})
    return values.get("_target_") == "paceline.cluster.virtual.VirtualCluster"


def flat_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by dotted name, as on the command line."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            inside = flat_settings(cast("Mapping[str, Any]", value))
            flat |= {f"{name}.{inner}": each for inner, each in inside.items()}
        else:
            flat[str(name)] = value
    return flat


def _images_per_worker(default: int, all_workers: Any, workers: Any) -> int:
    """Return the images of a step divided by the number of workers, or `default`.

    The result is `default` if the values cannot be divided; they are refused later.
    """
    divisible = isinstance(all_workers, int) and isinstance(workers, int) and workers > 0
    return all_workers // workers if divisible else default


OmegaConf.register_new_resolver("images_per_worker", _images_per_worker, replace=True)


def _check_batches(cfg: DictConfig) -> None:
    images, workers = cfg.global_batch_size, cfg.workers
    if images is None:
        return
    if not OmegaConf.is_interpolation(cfg, "batch_size"):
        message = f"{images}, but batch_size={cfg.batch_size} is also given; give one of them"
    elif isinstance(images, bool) or not isinstance(images, int) or images < 1:
        message = f"a whole number of at least 1 is needed, not {images!r}"
    elif isinstance(workers, int) and workers > 0 and images % workers:
        message = f"{images} images cannot be divided equally among workers={workers}"
    else:
        return
    raise SettingError("global_batch_size", message)


def asked_target(target: Any) -> Mapping[str, Any] | None:
    """Check and return the target: the accuracy or loss to which a study measures the time.

    A target is {metric, value} or {metric, below_baseline}. With None, the analysis chooses one.
    Raises SettingError for anything else.
    """
    if target is None:
        return None
    values = cast("Mapping[str, Any]", target if isinstance(target, Mapping) else {})
    name = next((name for name in _DISTANCES if set(values) == {"metric", name}), None)
    if name is None:
        message = f"null or metric and one of {', '.join(_DISTANCES)} is needed, not {target!r}"
        raise SettingError("target", message)
    metric, value = values["metric"], values[name]
    if metric not in _METRICS:
        message = f"one of {', '.join(_METRICS)} is needed, not {metric!r}"
        raise SettingError("target.metric", message)
    most, what = 1.0, "a share between 0 and 1"
    if metric == "loss":
        most, what = math.inf, "a number above 0"
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < most:
        raise SettingError(f"target.{name}", f"{what} is needed, not {value!r}")
    return {"metric": metric, name: float(value)}


def jobs_for(cluster: Any) -> int:
    """Return the number of points that run at a time with sweep.jobs=auto. `cluster`: the settings
    of the cluster. Points on a virtual clock keep a core busy each, also on a GPU.
    """
    threads = cluster.get("threads_per_worker") if is_virtual(cluster) else None
    return max(1, num_cores() // threads) if isinstance(threads, int) and threads > 0 else 1


def _in_bytes(values: Any) -> Any:
    """Return settings whose bandwidths are numbers, so that equal ones have equal keys.

    A bandwidth that is no such text stays; the class of the setting refuses it.
    """
    if not isinstance(values, dict):
        return values
    inner = cast("dict[Any, Any]", values)
    return {name: _bandwidth(name, value) for name, value in inner.items()}


def _bandwidth(name: object, value: Any) -> Any:
    if str(name).endswith("bandwidth"):
        with suppress(ValueError):
            return in_bytes_per_second(value)
    return _in_bytes(value)
