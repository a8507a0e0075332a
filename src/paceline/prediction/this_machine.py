"""Measurements of this machine, and the modelled cluster's profile that is computed from them."""

import math
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median

import numpy as np

from paceline.exchange.collectives import collective
from paceline.timing.profile import ClusterProfile, Link

Times = dict[int, float]  # seconds by number of weights

WEIGHT_BYTES = 4  # float32
_NO_LIMIT = 1e15  # bytes/s, where more bytes took no longer


@dataclass(frozen=True)
class MeasuredSteps:
    """Measurements of one worker: seconds of each step by batch size.

    `ddp_steps`: seconds of each step of DistributedDataParallel with one worker, at the chosen
    batch size.
    """

    accelerator: str
    num_parameters: int
    steps: dict[int, np.ndarray]
    ddp_steps: np.ndarray


@dataclass(frozen=True)
class Measured:
    """Measurements of this machine.

    `batch_size`: the chosen batch size. `pause`: longest pause before a message [seconds].
    `together`: mean seconds of a step, by the number of workers that take steps at once. `pair`:
    results of `measure_pair`. `added`: seconds that an exchange of the model's weights adds to a
    step, by kind of exchange. `crowded`: seconds of all-reduces over more workers than cores, by
    number of workers; empty on a machine with many cores.
    """

    started: datetime
    load: float  # load average of the machine over the minute before
    cores: int  # cores that this process may use
    batch_size: int
    pause: float
    worker: MeasuredSteps
    together: dict[int, float]
    pair: dict[str, Times]
    added: dict[str, float]
    crowded: dict[int, Times]


def profile_of_measured(measured: Measured) -> ClusterProfile:
    """Return the profile of a modelled cluster that follows from the measurements.

    Fixed costs are computed from the fastest messages, bandwidths from the largest messages, and
    the time that a core needs for a message from all-reduces over more workers than cores.
    """
    server_seconds, each_weight_byte = line_through(measured.pair["serve"])
    _, each_handled_byte = line_through(measured.pair["handle"])  # received and sent
    both_ways, each_byte = line_through(measured.pair["push_pull"])
    full = {size: s for size, s in measured.pair["allreduce"].items() if size >= 4}
    allreduce = line_through(full)  # of fewer weights some messages are empty
    allreduce_latency, each_allreduced = allreduce_link_of(*allreduce, measured.cores)
    costs = {n: _of_message(n, times, measured.cores) for n, times in measured.crowded.items()}
    return ClusterProfile(
        link=Link(0, math.inf),
        node_link=Link(both_ways / 2, _rate(each_byte / 2)),
        workers_per_node=None,
        server_seconds=server_seconds,
        server_bandwidth=_rate(each_weight_byte),
        server_copy_bandwidth=_rate(each_handled_byte / 2),
        node_cores=measured.cores,
        allreduce_link=Link(allreduce_latency, _rate(each_allreduced)),
        message_seconds={n: each for n, (each, _) in costs.items()},
        message_bandwidth={n: min(rate, _NO_LIMIT) for n, (_, rate) in costs.items()},
    )


def line_through(times: Times) -> tuple[float, float]:
    """Return (fixed, per_byte) of seconds = fixed + per_byte * bytes, neither negative.

    The line passes through the times of two messages: the largest, and the fastest of the others,
    which is the best estimate of the fixed cost.
    """
    many = max(times)
    few = min((size for size in times if size < many), key=times.__getitem__)
    per_byte = max(0.0, (times[many] - times[few]) / ((many - few) * WEIGHT_BYTES))
    return max(0.0, times[few] - per_byte * few * WEIGHT_BYTES), per_byte


def allreduce_link_of(fixed: float, per_byte: float, cores: int) -> tuple[float, float]:
    """Return (latency, seconds per byte) of the messages of gloo, torch's communication on CPUs.

    `fixed`, `per_byte`: line through the times of gloo's all-reduces between two workers. Such an
    all-reduce takes two rounds, and each worker needs a core to copy bytes.
    """
    return fixed / 2, per_byte / max(1, 2 / cores)


def _of_message(workers: int, times: Times, cores: int) -> tuple[float, float]:
    """Return the seconds of a core for a message, and its bytes/s."""
    fixed, each_byte = line_through(times)
    messages = collective("native").node_messages(workers, workers)
    each = fixed * cores / messages.num_messages
    return each, _rate(each_byte * cores / messages.num_vectors)


def _rate(seconds: float) -> float:
    return 1 / seconds if seconds else math.inf


def exchange_seconds(measured: Measured) -> tuple[float, float]:
    """Return what a push and what an all-reduce add to a training step beyond their own time.

    Both are in seconds, and at least 0. The own time is that of the profile.
    """
    profile = profile_of_measured(measured)
    num_bytes = measured.worker.num_parameters * WEIGHT_BYTES
    served = profile.server_seconds + num_bytes / profile.server_bandwidth
    push = 2 * profile.node_link.seconds(num_bytes) + served
    allreduce = collective("native").seconds(num_bytes, 2, profile)
    added = measured.added
    return max(0.0, added["push_pull"] - push), max(0.0, added["allreduce"] - allreduce)


def jitter(seconds: np.ndarray) -> float:
    """Return the sigma of a log-normal factor on the time of a step.

    It is half of the range of the middle 68 % of the logarithms, so that a few delayed steps have
    no effect.
    """
    low, high = np.quantile(np.log(seconds), [0.16, 0.84])
    return float(high - low) / 2


def speeds(measured: Measured) -> dict[int, float]:
    """Return the total speed of n workers at once, as a multiple of one worker's, by n."""
    alone = measured.together[1]
    return {count: count * alone / seconds for count, seconds in measured.together.items()}


def ddp_seconds(measured: Measured) -> float:
    """Return what DistributedDataParallel adds to a step [seconds], by medians, not negative."""
    worker = measured.worker
    without = median(worker.steps[measured.batch_size])
    return max(0.0, median(worker.ddp_steps) - without)


def rows(measured: Measured) -> list[tuple[str, str]]:
    """Return the name of each number, and the number with its unit and its model, as text."""
    profile, found = profile_of_measured(measured), list[tuple[str, str]]()
    for size, seconds in measured.worker.steps.items():
        rate = f"{size / fmean(seconds):,.0f} images/s; n={len(seconds):,}"
        text = f"{_milliseconds(fmean(seconds))}, {rate}, jitter {jitter(seconds):.2f}"
        found.append((f"step at batch size {size}", text))
    for count, seconds in list(measured.together.items())[1:]:
        speed = f"{speeds(measured)[count]:.2f} times the speed of one"
        found.append((f"{count} workers at once", f"{_milliseconds(seconds)} a step, {speed}"))
    found += [
        ("push and pull in training", f"{_milliseconds(measured.added['push_pull'])} a step"),
        ("all-reduce in training", f"{_milliseconds(measured.added['allreduce'])} a step"),
        ("DistributedDataParallel itself", f"{_milliseconds(ddp_seconds(measured))} a step"),
        ("server's work for a push", f"{1e6 * profile.server_seconds:.0f} us"),
        ("server's update of weights", _gigabytes(profile.server_bandwidth)),
        ("server's messages over TCP", _gigabytes(profile.server_copy_bandwidth)),
        ("loopback, latency each way", f"{1e6 * profile.node_link.latency:.0f} us"),
        ("loopback, bandwidth each way", _gigabytes(profile.node_link.bandwidth)),
    ]
    for size, seconds in measured.pair["push_pull"].items():
        modelled = 2 * profile.node_link.seconds(size * WEIGHT_BYTES)
        found.append((f"push and pull of {_weights(size)}", _both_times(seconds, modelled)))
    native = collective("native")
    for workers, times in {2: measured.pair["allreduce"], **measured.crowded}.items():
        for size, seconds in times.items():
            modelled = native.seconds(size * WEIGHT_BYTES, workers, profile)
            name = f"all-reduce of {_weights(size)}, {workers} workers"
            found.append((name, _both_times(seconds, modelled)))
    return found


def _both_times(measured: float, modelled: float) -> str:
    return f"{_milliseconds(measured)}; by this profile {_milliseconds(modelled)}"


def _weights(count: int) -> str:
    return f"{count:,} weight{'s' if count > 1 else ''}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"


def _gigabytes(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.3g} GB/s"
