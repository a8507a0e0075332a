"""Writes the measurements of this machine as a file of conf/cluster."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from paceline.calibration.measure import Measured
from paceline.calibration.this_machine import (
    ddp_seconds,
    exchange_seconds,
    jitter,
    milliseconds,
    profile_of_measured,
    speeds,
    unused,
)
from paceline.errors import SettingError
from paceline.record import provenance
from paceline.record.point import Point
from paceline.timing.profile import ClusterProfile

CALIBRATED = "by `paceline calibrate`"  # in every file of a measured machine

_TEXT = """\
# A machine on the virtual clock, {calibrated}: all but 0 and null is measured there.
# {when}, load average {load:.2f} before; commit {commit}.
# {machine}; {versions}.
_target_: paceline.cluster.virtual.VirtualCluster
accelerator: auto # that computes the gradients, not the one that is modelled
threads_per_worker: {threads}
timeout_seconds: 600
{accelerator_steps}
# Measured at batch size {batch_size}: half of what the middle 68 % of the logarithms span.
step_jitter: {jitter}
slow_workers: 0
slow_factor: 1
straggler_probability: 0
straggler_factor: 1
# Measured in a server: bookkeeping, and SGD with momentum on 1 and {most:,} weights.
server_seconds: {server_seconds}
server_bandwidth: {server_bandwidth}
workers_per_node: null # all on one machine
node_cores: {cores} # shared by all processes, also for passing messages
server_placement: own_nodes # without effect on one machine
overlap: true # gradients are reduced in buckets during backward, as under DDP
step_rates: {{}} # of published accelerators, by workload
fitted_to: [] # rows of papers/published.csv, for other numbers than step_rates
assumed: {{}} # {{setting: [least, greatest]}}, for intervals of predictions
link: # not on the way
  latency: 0
  bandwidth: null
# Measured: push and pull of 1 and {most:,} float32 between two processes, in shared memory,
# each after a pause of at most {pause}; half of it each way.
node_link:
  latency: {latency}
  bandwidth: {bandwidth}
# Measured: what all-reduces of {few:,} and {most:,} float32 over two processes say of gloo's
# messages, which go over sockets: seconds since the last arrived, mean over workers.
allreduce_link:
  latency: {allreduce_latency}
  bandwidth: {allreduce_bandwidth}
{crowded}
{shared_cores}
# Measured besides, not used:
{besides}
"""

_STEPS = """\
# Measured: {model} ({num_parameters:,} parameters) on {data}, {precision}; one worker alone,
# on the {device}, {threads} thread(s). Draw, forward, backward and SGD in Lightning's loop; means
# of {num_steps} steps.
step_seconds: {{ {steps} }}"""

_CORES = """\
# Measured at batch size {batch_size}: {together} workers at once take {seconds} a step.
speeds: {{ {speeds} }}
# Measured at batch size {batch_size}: one worker's median by DistributedDataParallel, less without.
ddp_seconds: {ddp_seconds}
# Measured: exchanges of {num_parameters:,} float32 between two processes add {added_push} and
# {added_allreduce} to a step in training; less what they take by themselves.
push_seconds: {push_seconds}
allreduce_seconds: {allreduce_seconds}"""

_CROWDED = """\
# Measured, for all-reduces of few and many float32 over more workers than cores:
{rows}
message_seconds: {{ {message_seconds} }}
message_bandwidth: {{ {message_bandwidth} }}"""

_EMULATED = "step_seconds: null # a number emulates accelerators instead: of each worker its own"

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def path_of(folder: Path, name: str) -> Path:
    """Return the path of a cluster's file in `folder`.

    Raises SettingError("write") for a name that cannot be chosen on the command line, and for that
    of a cluster that was not calibrated.
    """
    if not _NAME.fullmatch(name):
        raise SettingError("write", f"{name!r} is no name of a cluster: small letters, digits, _")
    path = folder / f"{name}.yaml"
    if path.is_file() and CALIBRATED not in path.read_text():
        raise SettingError("write", f"{name} is another cluster's name, which nothing may replace")
    return path


def write(measured: Measured, point: Point, path: Path) -> None:
    """Write the cluster's file, replacing it. `point` is the point that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(_text(measured, point))
    partial.replace(path)


def _text(measured: Measured, point: Point) -> str:
    profile = profile_of_measured(measured)
    allreduce = profile.allreduce_link
    assert allreduce is not None
    machine, packages = provenance.hardware(), provenance.versions()
    named = ("python", "torch", "pytorch-lightning")
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    on_gpu = measured.worker.accelerator == "cuda"
    return _TEXT.format(
        calibrated=CALIBRATED,
        when=measured.started.strftime("%Y-%m-%d %H:%M UTC"),
        machine=f"{machine['cpu']}, {machine['cores']} cores, {gpus}",
        versions=", ".join(f"{name} {packages[name]}" for name in named),
        commit=_commit(),
        load=measured.load,
        cores=measured.cores,
        threads=point.cluster.threads_per_worker,
        accelerator_steps=_steps(measured, point) if on_gpu else _EMULATED,
        shared_cores="shared_cores: null" if on_gpu else _shared_cores(measured, point),
        jitter=_number(jitter(measured.worker.steps[measured.batch_size])),
        batch_size=measured.batch_size,
        pause=milliseconds(measured.pause),
        most=max(measured.pair["serve"]),
        server_seconds=_number(profile.server_seconds),
        server_bandwidth=_number(profile.server_bandwidth),
        latency=_number(profile.node_link.latency),
        bandwidth=_number(profile.node_link.bandwidth),
        few=min(size for size in measured.pair["allreduce"] if size >= 4),
        allreduce_latency=_number(allreduce.latency),
        allreduce_bandwidth=_number(allreduce.bandwidth),
        crowded=_crowded(measured, profile),
        besides="\n".join(f"# {name}: {value}" for name, value in unused(measured, profile)),
    )


def _steps(measured: Measured, point: Point) -> str:
    worker = measured.worker
    return _STEPS.format(
        model=point.config.names["model"],
        data=point.config.names["data"],
        num_parameters=worker.num_parameters,
        precision=point.training.precision,
        device="GPU" if worker.accelerator == "cuda" else "CPU",
        threads=point.cluster.threads_per_worker,
        num_steps=", ".join(f"{len(seconds):,}" for seconds in worker.steps.values()),
        steps=", ".join(f"{size}: {_number(fmean(s))}" for size, s in worker.steps.items()),
    )


def _shared_cores(measured: Measured, point: Point) -> str:
    """Return the lines of `shared_cores`, which belong together."""
    together, added = measured.together, measured.added
    push, allreduce = exchange_seconds(measured)
    cores = _CORES.format(
        batch_size=measured.batch_size,
        together=", ".join(map(str, together)),
        seconds=", ".join(map(milliseconds, together.values())),
        speeds=", ".join(f"{count}: {_number(s)}" for count, s in speeds(measured).items()),
        ddp_seconds=_number(ddp_seconds(measured)),
        num_parameters=measured.worker.num_parameters,
        added_push=milliseconds(added["push_pull"]),
        added_allreduce=milliseconds(added["allreduce"]),
        push_seconds=_number(push),
        allreduce_seconds=_number(allreduce),
    )
    lines = [*_steps(measured, point).splitlines(), *cores.splitlines()]
    return "\n".join(
        ["shared_cores: # on which all processes compute", *(f"  {line}" for line in lines)]
    )


def _crowded(measured: Measured, profile: ClusterProfile) -> str:
    if not measured.crowded:
        return "message_seconds: {} # not measured: that would be too many workers"
    rows = [
        f"# {workers} workers: " + ", ".join(f"{milliseconds(s)} of {n:,}" for n, s in each.items())
        for workers, each in measured.crowded.items()
    ]
    return _CROWDED.format(
        rows="\n".join(rows),
        message_seconds=_by_workers(profile.message_seconds),
        message_bandwidth=_by_workers(profile.message_bandwidth),
    )


def _by_workers(values: Mapping[int, float]) -> str:
    return ", ".join(f"{workers}: {_number(value)}" for workers, value in values.items())


def _commit() -> str:
    commit = provenance.commit()
    return commit[:12] + "+dirty" * commit.endswith("+dirty") or "unknown"


def _number(value: float) -> str:
    """Format a number for YAML with three digits.

    An exponent follows a decimal point, since YAML reads 1e-05 as text.
    """
    if value == 0:
        return "0"
    if math.isinf(value):
        return "null"
    return f"{value:.3g}" if 1e-3 <= value < 1e3 else f"{value:.2e}"
