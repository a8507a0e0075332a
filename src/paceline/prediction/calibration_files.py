"""Writes the results of `paceline calibrate` as files for conf/cluster and conf/workload.

A file of conf/cluster describes a modelled cluster; a file of conf/workload has the size of a
network.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from paceline.errors import SettingError
from paceline.model.network_size import NetworkSize
from paceline.prediction.this_machine import (
    Measured,
    ddp_seconds,
    exchange_seconds,
    jitter,
    profile_of_measured,
    rows,
    speeds,
)
from paceline.record import provenance
from paceline.record.point import Point
from paceline.record.point_config import PointConfig
from paceline.timing.profile import Link

CALIBRATED = "by `paceline calibrate`"  # in every file of a measured machine
_PACKAGES = ("python", "torch", "pytorch-lightning")
_CLUSTER_NAME, _WORKLOAD_NAME = re.compile(r"[a-z][a-z0-9_]*"), re.compile(r"[a-z]\w*")
_WORKLOAD = """\
# {name}: {megabytes:.1f} MB of weights, {gigaflops:.2f} G multiply-adds for an image. Counted by
# paceline {command}
_target_: paceline.timing.workload.CountedNetwork
name: {name}
image_shape: [{image_shape}]
num_classes: {num_classes}
tensors: [{tensors}] # weights of each parameter
layers: # in the order of forward: name, weights, multiply-adds and activations of one image
{layers}
"""


def cluster_path(folder: Path, name: str) -> Path:
    """Return the path of a cluster's file in `folder`.

    Raises SettingError("write") for a name that the command line does not accept, and for the name
    of an existing file that `paceline calibrate` did not write.
    """
    if not _CLUSTER_NAME.fullmatch(name):
        raise SettingError("write", f"{name!r} is no name of a cluster: small letters, digits, _")
    path = folder / f"{name}.yaml"
    if path.is_file() and CALIBRATED not in path.read_text():
        raise SettingError("write", f"{name} is another cluster's name, which nothing may replace")
    return path


def write_cluster(measured: Measured, point: Point, path: Path) -> None:
    """Write or replace the file of a cluster.

    `point`: the run whose model, data and settings were used in the measurements.
    """
    comments = "".join(f"# {line}\n" for line in _comments(measured, point))
    values = _values(measured, point.cluster.threads_per_worker)
    _replace(path, comments + yaml.safe_dump(values, sort_keys=False, default_flow_style=None))


def write_workload(
    config: PointConfig, size: NetworkSize, name: str, command: str, folder: Path
) -> Path:
    """Write or replace the workload `folder`/`name`.yaml, with a network's `size`; return its path.

    `command`: arguments with which `paceline` counts this network again. Raises
    SettingError("write") for a name that the command line does not accept.
    """
    if not _WORKLOAD_NAME.fullmatch(name) or name in ("own", "sized"):
        raise SettingError("write", f"{name!r} is no name for a workload: small letters, digits, _")
    data, path = config.values["data"], folder / f"{name}.yaml"
    text = _WORKLOAD.format(
        name=name,
        megabytes=size.weight_bytes / 1e6,
        gigaflops=size.multiply_adds / 1e9,
        command=command,
        image_shape=", ".join(map(str, data["image_shape"])),
        num_classes=data["num_classes"],
        tensors=", ".join(map(str, size.tensors)),
        layers="\n".join(f"  - [{', '.join(map(str, layer))}]" for layer in size.layers),
    )
    _replace(path, text)
    return path


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(text)
    partial.replace(path)


def _comments(measured: Measured, point: Point) -> list[str]:
    machine, packages = provenance.hardware(), provenance.versions()
    commit = provenance.commit()
    of_code = commit[:12] + "+dirty" * commit.endswith("+dirty") or "unknown"
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    worker, names = measured.worker, point.config.names
    network = f"{names['model']} ({worker.num_parameters:,} parameters) on {names['data']}"
    device = "GPU" if worker.accelerator == "cuda" else "CPU"
    threads = f"{point.cluster.threads_per_worker} thread(s) of each worker"
    return [
        f"A machine on the virtual clock, {CALIBRATED}: what this file sets is measured there.",
        f"{measured.started:%Y-%m-%d %H:%M} UTC, load average {measured.load:.2f} before; "
        f"commit {of_code}.",
        f"{machine['cpu']}, {machine['cores']} cores, {gpus}; "
        f"{', '.join(f'{name} {packages[name]}' for name in _PACKAGES)}.",
        f"{network}, {point.training.precision}, on the {device}, {threads}.",
        "A step is draw, forward, backward and SGD in Lightning's loop; jitter and workers at once "
        f"are of batch size {measured.batch_size}.",
        f"A message comes after a pause of at most {1e3 * measured.pause:.3g} ms.",
        *(f"  {name}: {value}" for name, value in rows(measured)),
    ]


def _values(measured: Measured, threads_per_worker: int) -> dict[str, Any]:
    """Return the measured settings of the cluster."""
    profile, worker = profile_of_measured(measured), measured.worker
    assert profile.allreduce_link is not None
    steps = _rounded({size: fmean(seconds) for size, seconds in worker.steps.items()})
    push, allreduce = exchange_seconds(measured)
    cores = {
        "step_seconds": steps,
        "speeds": _rounded(speeds(measured)),
        "ddp_seconds": _number(ddp_seconds(measured)),
        "push_seconds": _number(push),
        "allreduce_seconds": _number(allreduce),
    }
    on_gpu = worker.accelerator == "cuda"
    return {
        "defaults": ["base/modelled@_here_", "_self_"],
        "threads_per_worker": threads_per_worker,
        "step_seconds": steps if on_gpu else None,
        "step_jitter": _number(jitter(worker.steps[measured.batch_size])),
        "server_seconds": _number(profile.server_seconds),
        "server_bandwidth": _number(profile.server_bandwidth),
        "server_copy_bandwidth": _number(profile.server_copy_bandwidth),
        "node_cores": measured.cores,
        "node_link": _link(profile.node_link),
        "allreduce_link": _link(profile.allreduce_link),
        "message_seconds": _rounded(profile.message_seconds),
        "message_bandwidth": _rounded(profile.message_bandwidth),
        "shared_cores": None if on_gpu else cores,
    }


def _link(link: Link) -> dict[str, float | None]:
    return {"latency": _number(link.latency), "bandwidth": _number(link.bandwidth)}


def _rounded(values: Mapping[int, float]) -> dict[int, float | None]:
    return {key: _number(value) for key, value in values.items()}


def _number(value: float) -> float | None:
    """Round to three digits; infinity becomes None."""
    return None if math.isinf(value) else float(f"{value:.3g}")
