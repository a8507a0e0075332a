"""Times the network that a prediction names: `model=vit_b_16`, on a cluster that knows no step of
the trained network itself. The network is counted, without memory for its weights.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from paceline.errors import SettingError
from paceline.model.network_size import NetworkSize
from paceline.record.point_config import PointConfig
from paceline.record.target import Target
from paceline.timing.chip import Chip
from paceline.timing.workload import OWN, CountedNetwork

_COUNTED = f"{CountedNetwork.__module__}.{CountedNetwork.__name__}"
_STATES = {"SGD": 1, "Adagrad": 1}  # vectors of an optimizer's state; else 2


def own_images(job: Sequence[str], config: PointConfig) -> list[str]:
    """Return the settings by which the images of a prediction are those for which its network is
    published; none if the data are chosen, or if the network is not asked for.

    `job`: the settings that were chosen. Raises SettingError("model") if no network is chosen.
    """
    chosen = {each.partition("=")[0].lstrip("+~") for each in job}
    if not counts_network(config):
        return []
    if "model" not in chosen:
        cluster = config.values["cluster"]
        known = [] if cluster.get("chip") else [*cluster["step_rates"]]
        message = "the step of this cluster follows from a network; choose one, as model="
        raise SettingError("model", message + (known or ["vit_b_16"])[0])
    if any(each.partition(".")[0] == "data" for each in chosen):
        return []
    from paceline.model.network import published_image_shape  # torch takes seconds

    shape = published_image_shape(name_of(config))
    return [] if shape is None else ["data=image_folder", f"data.image_shape={[*shape]}"]


def in_precision(job: Sequence[str], config: PointConfig) -> list[str]:
    """Return the setting of the precision in which a chip computes, where one was chosen.

    Raises SettingError("training.precision") for one that the chip does not have.
    """
    chip = _chip(config)
    words = [each.lstrip("+") for each in job]
    if chip is None or not any(each.startswith("training.precision=") for each in words):
        return []
    precision = str(config.values["training"]["precision"])
    chip.check_precision(precision)
    return [f"++cluster.chip.computes_in={precision}"]


def counts_network(config: PointConfig) -> bool:
    """Return True if the time of a step follows from the network that `model` names."""
    cluster, workload = config.values["cluster"], config.values["workload"]
    timed = cluster.get("step_seconds") is not None or cluster.get("shared_cores")
    known = cluster.get("chip") or cluster.get("step_rates")
    return workload.get("name") == OWN and bool(known) and not timed


def name_of(config: PointConfig) -> str:
    """Return the name of the point's network."""
    network: Any = config.values["model"].get("network")
    named = network.get("name") if isinstance(network, Mapping) else None
    return named if isinstance(named, str) else config.names["model"]


def with_network(config: PointConfig) -> PointConfig:
    """Return the configuration in which the counted network of `model` is the workload, and in
    which the accelerators compute in the precision that was chosen.

    Raises SettingError for a precision that the chip does not have, for a network that nothing
    times, and for a batch that the chip's memory does not hold.
    """
    values: dict[str, Any] = {}
    if (chip := _chip(config)) is not None:
        values["training"] = {**config.values["training"], "precision": "32-true"}  # here: nothing
    if counts_network(config):
        from paceline.model.network import published_image_shape  # torch takes seconds

        name, shape = name_of(config), config.values["data"].get("image_shape")
        size, kept = _counted(json.dumps(config.target("model").values), tuple(shape))
        if chip is not None:
            _check_memory(config, chip, name, size.weight_bytes, kept)
        if published_image_shape(name) not in (None, tuple(shape)):
            name += f"_{shape[-1]}"
        values["workload"] = {
            "_target_": _COUNTED,
            "name": name,
            "image_shape": [*shape],
            "num_classes": config.values["data"].get("num_classes", 1000),
            "layers": [[*layer] for layer in size.layers],
            "tensors": [*size.tensors],
            "kept": kept,
        }
        values["names"] = {**config.names, "workload": name}
    elif chip is not None and config.values["workload"].get("_target_") == _COUNTED:
        network = _workload(json.dumps(config.values["workload"]))
        weight_bytes = network.size.weight_bytes
        _check_memory(config, chip, network.name, weight_bytes, network.activations)
    return config.replaced(**values) if values else config


def _chip(config: PointConfig) -> Chip | None:
    chip: Any = config.values["cluster"].get("chip")
    return Chip(**chip) if chip else None


def _check_memory(config: PointConfig, chip: Chip, name: str, weight_bytes: int, kept: int) -> None:
    """Raise SettingError("batch_size") if a step does not fit into the chip's memory.

    `kept`: activations that backward keeps of an image. Weights, gradients and the optimizer's
    state have 4 bytes a number in mixed precision, too.
    """
    optimizer: Any = config.values["model"].get("optimizer")
    kind = str(optimizer.get("_target_", "")) if isinstance(optimizer, Mapping) else ""
    states = _STATES.get(kind.rpartition(".")[2], 2)
    most = chip.largest_batch(weight_bytes, kept, states)
    batch_size = config.values["batch_size"]
    if not isinstance(batch_size, int) or batch_size <= most:
        return
    fit = f"at most {most:,} fit" if most > 0 else "none fit"
    message = f"{batch_size:,} images of {name} per worker do not fit into the "
    message += f"{chip.memory / 1e9:,.0f} GB of the {chip.name}; {fit}"
    raise SettingError("batch_size", message)


@lru_cache(maxsize=8)
def _workload(values: str) -> CountedNetwork:
    """Return the counted network with these settings, given as JSON."""
    return Target("workload", json.loads(values)).build_as(CountedNetwork)


@lru_cache(maxsize=64)
def _counted(model: str, image_shape: tuple[int, ...]) -> tuple[NetworkSize, int]:
    """Return the sizes of a network's layers, and the numbers that backward keeps of an image.

    `model`: the settings of the model as JSON.
    """
    from paceline.model.count_layers import count_kept, count_layers, without_weights  # a compiler

    values = json.loads(model)
    network = values.get("network")
    if isinstance(network, dict) and "_target_" in network:
        values = network  # without Lightning, whose import takes seconds
    built = without_weights(Target("model", values).build)
    return count_layers(built, image_shape), count_kept(built, image_shape)
