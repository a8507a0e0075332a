"""Measurements of this machine, and the profile of a modelled cluster that follows from them."""

import math
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import fmean, median

import numpy as np

from paceline.exchange.find_collective import collective
from paceline.timing.profile import ClusterProfile, Link

Times = dict[int, float]  # seconds by number of weights

WEIGHT_BYTES = 4  # float32
_NO_LIMIT = 1e15  # bytes/s, where more bytes took no longer


@dataclass(frozen=True)
class MeasuredSteps:
    """Measurements of one worker: seconds of each step by batch size.

    `ddp_steps` are steps at the chosen batch size by DistributedDataParallel with one worker.
    """

    accelerator: str
    num_parameters: int
    steps: dict[int, np.ndarray]
    ddp_steps: np.ndarray


@dataclass(frozen=True)
class Measured:
    """Measurements of this machine.

    `batch_size` is the chosen one, `pause` the longest before a message [seconds]. `together` has
    the mean seconds of a step by the number of workers at once, `pair` the results of measure_pair,
    `added` the seconds that an exchange of the model's weights adds to a step, and `crowded` the
    seconds of all-reduces over more workers than cores, by their number, or nothing on a large
    machine.
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

    Fixed costs come from the fastest messages, rates from the largest, and the cores' time per
    message from all-reduces over more workers than cores.
    """
    server_seconds, each_weight_byte = line_through(measured.pair["serve"])
    both_ways, each_byte = line_through(measured.pair["push_pull"])
    full = {size: s for size, s in measured.pair["allreduce"].items() if size >= 4}
    allreduce = line_through(full)  # of fewer weights some messages are empty
    allreduce_latency, each_allreduced = allreduce_link_of(*allreduce, measured.cores)
    profile = ClusterProfile(
        link=Link(0, math.inf),
        node_link=Link(both_ways / 2, _rate(each_byte / 2)),
        workers_per_node=None,
        server_seconds=server_seconds,
        server_bandwidth=_rate(each_weight_byte),
        node_cores=measured.cores,
        allreduce_link=Link(allreduce_latency, _rate(each_allreduced)),
    )
    costs = {n: _of_message(n, times, measured.cores) for n, times in measured.crowded.items()}
    return replace(
        profile,
        message_seconds={n: each for n, (each, _) in costs.items()},
        message_bandwidth={n: min(rate, _NO_LIMIT) for n, (_, rate) in costs.items()},
    )


def line_through(times: Times) -> tuple[float, float]:
    """Return (fixed, per_byte) of seconds = fixed + per_byte * bytes, neither negative.

    The line passes through the fastest message, the best estimate of the fixed cost, and the
    largest.
    """
    many = max(times)
    few = min((size for size in times if size < many), key=times.__getitem__)
    per_byte = max(0.0, (times[many] - times[few]) / ((many - few) * WEIGHT_BYTES))
    return max(0.0, times[few] - per_byte * few * WEIGHT_BYTES), per_byte


def allreduce_link_of(fixed: float, per_byte: float, cores: int) -> tuple[float, float]:
    """Return (latency, seconds per byte) of gloo's messages.

    They follow from native all-reduces between two workers, which take two rounds and need free
    cores to copy bytes.
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
    """Return what a push and an all-reduce add to a step besides their own time [seconds]."""
    profile = profile_of_measured(measured)
    num_bytes = measured.worker.num_parameters * WEIGHT_BYTES
    served = profile.server_seconds + num_bytes / profile.server_bandwidth
    push = 2 * profile.node_link.seconds(num_bytes) + served
    allreduce = collective("native").seconds(num_bytes, 2, profile)
    added = measured.added
    return max(0.0, added["push_pull"] - push), max(0.0, added["allreduce"] - allreduce)


def jitter(seconds: np.ndarray) -> float:
    """Return the sigma of a log-normal factor on the time of a step.

    It is half of what the middle 68 % of the logarithms span, so that a few delayed steps do not
    count.
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
