"""Writes the measurements of this machine as a file of conf/cluster and as a table."""

import math
import re
from pathlib import Path
from statistics import fmean, median

import numpy as np

from paceline.calibration.measure import Measured
from paceline.calibration.messages import (
    WEIGHT_BYTES,
    allreduce_link_of,
    cost_of,
    line_through,
    link_of,
)
from paceline.errors import SettingError
from paceline.exchange.find_collective import collective
from paceline.record import provenance
from paceline.record.point import Point
from paceline.timing.profile import ClusterProfile, Link

_TEXT = """\
# A machine on the virtual clock, by `paceline calibrate`: all but 0 and null is measured there.
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
# Measured: push and pull of 1 and {most:,} float32 between two processes, in shared memory;
# half of it each way. One of {num_parameters:,} float32 adds {added_push} to a step in training,
# the server's work included: where that is more, it is the latency.
node_link:
  latency: {latency}
  bandwidth: {bandwidth}
# Measured: what all-reduces of {few:,} and {most:,} float32 over two processes say of gloo's
# messages, which go over sockets; one of {num_parameters:,} adds {added_allreduce} to a step.
allreduce_link:
  latency: {allreduce_latency}
  bandwidth: {allreduce_bandwidth}
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
ddp_seconds: {ddp_seconds}"""
_EMULATED = "step_seconds: null # a number emulates accelerators instead: of each worker its own"
_NAME = re.compile(r"[a-z]\w*")


def path_of(folder: Path, name: str) -> Path:
    """Return the path of a cluster's file in `folder`.

    Raises SettingError("write") for a name that cannot be chosen on the command line.
    """
    if not _NAME.fullmatch(name):
        raise SettingError("write", f"{name!r} is no name of a cluster: small letters, digits, _")
    return folder / f"{name}.yaml"


def write(measured: Measured, point: Point, path: Path) -> None:
    """Write the cluster's file, replacing it. `point` is the point that was measured."""
    partial = path.with_suffix(".part")
    partial.write_text(_text(measured, point))
    partial.replace(path)


def table(measured: Measured) -> str:
    """Return all numbers with their units as text, one per line."""
    profile, rows = profile_of_measured(measured), []
    for size, seconds in measured.worker.steps.items():
        typical = fmean(seconds)
        rate = f"{size / typical:,.0f} images/s; n={len(seconds):,}, jitter {jitter(seconds):.2f}"
        rows.append((f"step at batch size {size}", f"{_milliseconds(typical)}, {rate}"))
    for count, seconds in list(measured.together.items())[1:]:
        speed = f"{speeds(measured)[count]:.2f} times the speed of one"
        rows.append((f"{count} workers at once", f"{_milliseconds(seconds)} a step, {speed}"))
    rows += [
        ("push and pull in training", f"{_milliseconds(measured.added['push_pull'])} a step"),
        ("all-reduce in training", f"{_milliseconds(measured.added['allreduce'])} a step"),
        ("DistributedDataParallel itself", f"{_milliseconds(ddp_seconds(measured))} a step"),
        ("server's work for a push", f"{1e6 * profile.server_seconds:.0f} us"),
        ("server's update of weights", _gigabytes(profile.server_bandwidth)),
        ("loopback, latency each way", f"{1e6 * profile.node_link.latency:.0f} us"),
        ("loopback, bandwidth each way", _gigabytes(profile.node_link.bandwidth)),
        *_unused(measured, profile),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def profile_of_measured(measured: Measured) -> ClusterProfile:
    """Return the profile of a modelled cluster that follows from the measurements.

    Fixed costs are taken from the fastest messages, rates from the largest.
    """
    weights, added = measured.worker.num_parameters, measured.added
    server_seconds, each_weight_byte = line_through(measured.pair["serve"])
    served = server_seconds + each_weight_byte * weights * WEIGHT_BYTES
    push = cost_of(measured.pair["push_pull"], weights, added["push_pull"] - served)
    latency, each_byte = link_of(*push)
    full = {size: s for size, s in measured.pair["allreduce"].items() if size >= 4}
    allreduce = cost_of(full, weights, added["allreduce"])  # fewer weights: some messages are empty
    allreduce_latency, each_allreduced = allreduce_link_of(*allreduce, measured.cores)
    node_link = Link(latency, _rate(each_byte))
    return ClusterProfile(
        link=Link(0, math.inf),
        node_link=node_link,
        workers_per_node=None,
        server_seconds=server_seconds,
        server_bandwidth=_rate(each_weight_byte),
        node_cores=measured.cores,
        allreduce_link=Link(allreduce_latency, _rate(each_allreduced)),
    )


def jitter(seconds: np.ndarray) -> float:
    """Return the sigma of a log-normal factor on the time of a step.

    It is estimated from quantiles, so that a few steps that the system delayed have no effect.
    """
    low, high = np.quantile(np.log(seconds), [0.16, 0.84])
    return float(high - low) / 2


def _text(measured: Measured, point: Point) -> str:
    profile = profile_of_measured(measured)
    allreduce = profile.allreduce_link
    assert allreduce is not None
    machine, packages = provenance.hardware(), provenance.versions()
    named = ("python", "torch", "pytorch-lightning")
    gpus = ", ".join(machine["gpus"]) or "no GPU"
    on_gpu = measured.worker.accelerator == "cuda"
    return _TEXT.format(
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
        most=max(measured.pair["serve"]),
        server_seconds=_number(profile.server_seconds),
        server_bandwidth=_number(profile.server_bandwidth),
        latency=_number(profile.node_link.latency),
        bandwidth=_number(profile.node_link.bandwidth),
        num_parameters=measured.worker.num_parameters,
        added_push=_milliseconds(measured.added["push_pull"]),
        added_allreduce=_milliseconds(measured.added["allreduce"]),
        few=min(size for size in measured.pair["allreduce"] if size >= 4),
        allreduce_latency=_number(allreduce.latency),
        allreduce_bandwidth=_number(allreduce.bandwidth),
        besides="\n".join(f"# {name}: {value}" for name, value in _unused(measured, profile)),
    )


def speeds(measured: Measured) -> dict[int, float]:
    """Return what n workers compute at once, as a multiple of one worker alone, by n."""
    alone = measured.together[1]
    return {count: count * alone / seconds for count, seconds in measured.together.items()}


def ddp_seconds(measured: Measured) -> float:
    """Return what DistributedDataParallel adds to a step [seconds], not negative.

    Medians, since what other guests of the host take is more than the difference.
    """
    worker = measured.worker
    without = median(worker.steps[measured.batch_size])
    return max(0.0, median(worker.ddp_steps) - without)


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
    together = measured.together
    cores = _CORES.format(
        batch_size=measured.batch_size,
        together=", ".join(map(str, together)),
        seconds=", ".join(map(_milliseconds, together.values())),
        speeds=", ".join(f"{count}: {_number(s)}" for count, s in speeds(measured).items()),
        ddp_seconds=_number(ddp_seconds(measured)),
    )
    lines = [*_steps(measured, point).splitlines(), *cores.splitlines()]
    return "\n".join(
        ["shared_cores: # on which all processes compute", *(f"  {line}" for line in lines)]
    )


def _commit() -> str:
    commit = provenance.commit()
    return commit[:12] + "+dirty" * commit.endswith("+dirty") or "unknown"


def _unused(measured: Measured, profile: ClusterProfile) -> list[tuple[str, str]]:
    """Return measurements that the profile does not use, beside its own prediction of them."""
    rows = [("memory copy by one thread", _gigabytes(measured.worker.copy_bandwidth))]
    for size, seconds in measured.pair["push_pull"].items():
        num_bytes = size * WEIGHT_BYTES
        modelled = 2 * profile.node_link.seconds(num_bytes)
        rows.append((f"push and pull of {_weights(size)}", _both_times(seconds, modelled)))
    for size, seconds in measured.pair["allreduce"].items():
        modelled = collective("native").seconds(size * WEIGHT_BYTES, 2, profile)
        rows.append(
            (
                f"all-reduce of {_weights(size)}, 2 workers",
                _both_times(seconds, modelled),
            )
        )
    return rows


def _both_times(measured: float, modelled: float) -> str:
    return f"{_milliseconds(measured)}; by this profile {_milliseconds(modelled)}"


def _weights(count: int) -> str:
    return f"{count:,} weight{'s' if count > 1 else ''}"


def _rate(seconds: float) -> float:
    return 1 / seconds if seconds else math.inf


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _gigabytes(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.3g} GB/s"


def _number(value: float) -> str:
    """Format a number for YAML with three digits.

    An exponent follows a decimal point, since YAML reads 1e-05 as text.
    """
    if value == 0:
        return "0"
    if math.isinf(value):
        return "null"
    return f"{value:.3g}" if 1e-3 <= value < 1e3 else f"{value:.2e}"
