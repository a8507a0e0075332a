"""What `paceline calibrate` has measured, and the modelled cluster that follows from it.

The tables MESSAGES and STEPS have a row for each number of the cluster: its name, its setting in
conf/cluster, its unit, and how it is fitted to which measurement.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from paceline.errors import SettingError
from paceline.exchange.collectives import collective
from paceline.record import provenance
from paceline.record.point import Point
from paceline.timing.profile import ClusterProfile, Link

Times = dict[int, float]  # seconds by number of float32 weights
CALIBRATED = "by `paceline calibrate`"  # in every file of a measured machine
WEIGHT_BYTES = 4  # float32
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Measured:
    """Measurements of this machine. All times are in seconds.

    `load`: its load average over the minute before. `cores`: those that this process may use.
    `num_weights`: of the model. `pause`: longest pause before a message. `times`: by kind. Kinds of
    messages, as `measure_messages` returns them, are by number of weights, and so is what an
    exchange adds to a training step ("push in training", "all-reduce in training"). Means of
    "step" are by batch size, and "jitter", the sigma of a log-normal factor on it, and "ddp", what
    DistributedDataParallel adds to it, by the chosen `batch_size`. Means of "together" are by the
    number of workers that take steps at once. `crowds`: times of all-reduces over more workers than
    cores, by number of workers; empty on a machine with many cores.
    """

    started: datetime
    load: float
    cores: int
    accelerator: str
    num_weights: int
    batch_size: int
    pause: float
    times: dict[str, Times]
    crowds: dict[int, Times]


class Number(NamedTuple):
    """Row of a table. `setting`: below `cluster`. `measured`: kind of its times. `fit`: the number
    that follows from these, or numbers by batch size or by workers. `unit`: a factor and a text.
    """

    name: str
    setting: str
    measured: str
    fit: Callable[[Times, Measured], Any]
    unit: tuple[float, str]


def line_through(times: Times) -> tuple[float, float]:
    """Return (fixed, per_byte) of seconds = fixed + per_byte * bytes, neither negative.

    The line passes through the times of two messages: the largest, and the fastest of the others,
    which is the best estimate of the fixed cost.
    """
    many = max(times)
    few = min((size for size in times if size < many), key=times.__getitem__)
    per_byte = max(0.0, (times[many] - times[few]) / ((many - few) * WEIGHT_BYTES))
    return max(0.0, times[few] - per_byte * few * WEIGHT_BYTES), per_byte


def _rate(seconds: float, most: float = math.inf) -> float:
    return min(1 / seconds, most) if seconds else most


def _of_gloo(times: Times, m: Measured) -> dict[str, float]:
    """Return the link of the messages of gloo, torch's communication on CPUs.

    An all-reduce of two workers takes two rounds, and each worker needs a core to copy bytes. Of
    fewer than 4 weights some messages are empty.
    """
    fixed, per_byte = line_through({size: times[size] for size in times if size >= 4})
    return {"latency": fixed / 2, "bandwidth": _rate(per_byte / max(1, 2 / m.cores))}


def _of_crowds(m: Measured, fit: Callable[[Any, float, float], float]) -> dict[int, float]:
    """Return by workers what `fit` makes of the messages of an all-reduce, and of the seconds of
    all cores that are fixed, and that go by the byte.
    """
    return {
        workers: fit(
            collective("native").node_messages(workers, workers),
            *(m.cores * each for each in line_through(times)),
        )
        for workers, times in m.crowds.items()
    }


def _beyond_own(times: Times, m: Measured, own: Callable[[ClusterProfile, int], float]) -> float:
    """Return what an exchange adds to a training step beyond its `own` time by the profile."""
    ((size, seconds),) = times.items()
    return max(0.0, seconds - own(profile_of_measured(m), size * WEIGHT_BYTES))


def _push(profile: ClusterProfile, num_bytes: int) -> float:
    served = profile.server_seconds + num_bytes / profile.server_bandwidth
    return 2 * profile.node_link.seconds(num_bytes) + served


def _allreduce(profile: ClusterProfile, num_bytes: int, workers: int = 2) -> float:
    return collective("native").seconds(num_bytes, workers, profile)


_MS, _US, _GB, _LINK = (1e3, "ms"), (1e6, "us"), (1e-9, "GB/s"), (1, "(seconds; bytes/s)")
_FACTOR, _SIGMA = (1, "times the speed of one"), (1, "standard deviation of the logarithm")
# fmt: off
MESSAGES = (
    Number("server's work for a push", "server_seconds", "serve",
           lambda times, _: line_through(times)[0], _US),
    Number("server's update of weights", "server_bandwidth", "serve",
           lambda times, _: _rate(line_through(times)[1]), _GB),
    Number("server's messages over TCP", "server_copy_bandwidth", "handle",
           lambda times, _: _rate(line_through(times)[1] / 2), _GB),
    Number("push or pull, latency", "node_link.latency", "push_pull",
           lambda times, _: line_through(times)[0] / 2, _US),
    Number("push or pull, bandwidth", "node_link.bandwidth", "push_pull",
           lambda times, _: _rate(line_through(times)[1] / 2), _GB),
    Number("all-reduce, {}", "allreduce_link", "allreduce", _of_gloo, _LINK),
    Number("core for a message, {} workers", "message_seconds", "allreduce",
           lambda _, m: _of_crowds(m, lambda of, fixed, _: fixed / of.num_messages), _US),
    Number("core's bandwidth, {} workers", "message_bandwidth", "allreduce",
           lambda _, m: _of_crowds(m, lambda of, _, byte: _rate(byte / of.num_vectors, 1e15)), _GB),
)
STEPS = (
    Number("step of {} images", "shared_cores.step_seconds", "step", lambda times, _: times, _MS),
    Number("jitter of a step", "step_jitter", "jitter",
           lambda times, m: times[m.batch_size], _SIGMA),
    Number("{} workers at once", "shared_cores.speeds", "together",
           lambda times, _: {n: n * times[1] / times[n] for n in times}, _FACTOR),
    Number("DistributedDataParallel", "shared_cores.ddp_seconds", "ddp",
           lambda times, m: times[m.batch_size], _MS),
    Number("push in training, besides", "shared_cores.push_seconds", "push in training",
           lambda times, m: _beyond_own(times, m, _push), _MS),
    Number("all-reduce in training, besides", "shared_cores.allreduce_seconds",
           "all-reduce in training", lambda times, m: _beyond_own(times, m, _allreduce), _MS),
)
# fmt: on


def settings_of(numbers: Sequence[Number], measured: Measured) -> dict[str, Any]:
    """Return the numbers as nested settings of a cluster."""
    found: dict[str, Any] = {}
    for number in numbers:
        group, _, leaf = number.setting.rpartition(".")
        (found.setdefault(group, {}) if group else found)[leaf] = number.fit(
            measured.times[number.measured], measured
        )
    return found


def profile_of_measured(measured: Measured) -> ClusterProfile:
    """Return the profile of a modelled cluster that follows from the measured messages."""
    known = {"link": Link(0, math.inf), "workers_per_node": None, "node_cores": measured.cores}
    return ClusterProfile(**known, **settings_of(MESSAGES, measured))


def rows(measured: Measured) -> Iterator[tuple[str, str]]:
    """Yield the name of each number, and the number with its unit, as text; then the measured times
    of messages beside those of the profile.
    """
    for name, _, kind, fit, (factor, unit) in (*STEPS, *MESSAGES):
        value = fit(measured.times[kind], measured)
        for key, one in value.items() if isinstance(value, dict) else [(None, value)]:
            yield name.format(key), f"{factor * one:.3g} {unit}"
    profile = profile_of_measured(measured)
    for size, seconds in measured.times["push_pull"].items():
        modelled = 2 * profile.node_link.seconds(size * WEIGHT_BYTES)
        yield f"push and pull of {size:,} weights", _both(seconds, modelled)
    for workers, times in {2: measured.times["allreduce"], **measured.crowds}.items():
        for size, seconds in times.items():
            modelled = _allreduce(profile, size * WEIGHT_BYTES, workers)
            yield f"all-reduce of {size:,} weights, {workers} workers", _both(seconds, modelled)


def _both(measured: float, modelled: float) -> str:
    return f"{1e3 * measured:.3g} ms; by this profile {1e3 * modelled:.3g} ms"


def cluster_path(folder: Path, name: str) -> Path:
    """Return the path of a cluster's file in `folder`.

    Raises SettingError("write") for a name that the command line does not accept, and for the name
    of an existing file that `paceline calibrate` did not write.
    """
    if not _NAME.fullmatch(name):
        raise SettingError("write", f"{name!r} is no name of a cluster: small letters, digits, _")
    path = folder / f"{name}.yaml"
    if path.is_file() and CALIBRATED not in path.read_text():
        raise SettingError("write", f"{name} is another cluster's name, which nothing may replace")
    return path


def write_cluster(measured: Measured, point: Point, path: Path) -> None:
    """Write or replace the file of a cluster.

    `point`: the run whose model, data and settings were used in the measurements.
    """
    found = _rounded(settings_of((*MESSAGES, *STEPS), measured))
    if measured.accelerator == "cuda":
        found["step_seconds"], found["shared_cores"] = found["shared_cores"]["step_seconds"], None
    else:
        found["step_seconds"] = None
    values = {
        "defaults": ["base/modelled@_here_", "_self_"],
        "threads_per_worker": point.cluster.threads_per_worker,
        "node_cores": measured.cores,
        **found,
    }
    comments = "".join(f"# {line}\n" for line in _comments(measured, point))
    replace_file(path, comments + yaml.safe_dump(values, sort_keys=False, default_flow_style=None))


def _rounded(value: Any) -> Any:
    """Round all numbers to three digits; infinity becomes None."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return None if math.isinf(value) else float(f"{value:.3g}")


def _comments(m: Measured, point: Point) -> Iterator[str]:
    machine, packages = provenance.hardware(), provenance.versions()
    names, commit = point.config.names, provenance.commit()
    of_code = commit[:12] + "+dirty" * commit.endswith("+dirty") or "unknown"
    versions = [f"{name} {packages[name]}" for name in ("python", "torch", "pytorch-lightning")]
    network = f"{names['model']} ({m.num_weights:,} parameters) on {names['data']}"
    yield f"A machine on the virtual clock, {CALIBRATED}: what this file sets is measured there."
    yield f"{m.started:%Y-%m-%d %H:%M} UTC, load average {m.load:.2f} before; commit {of_code}."
    yield f"{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['gpus']) or 'no GPU'}."
    yield f"{', '.join(versions)}; {network}, {point.training.precision}, on {m.accelerator}."
    yield f"A step is draw, forward, backward, SGD; jitter and speeds are of {m.batch_size} images."
    yield f"A message comes after a pause of at most {1e3 * m.pause:.3g} ms."
    yield from (f"  {name}: {value}" for name, value in rows(m))


def replace_file(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(text)
    partial.replace(path)
