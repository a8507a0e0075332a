"""Makes the profile of this machine, and a table, of what was measured."""

import math
from dataclasses import replace
from statistics import fmean, median

import numpy as np

from paceline.calibration.fits import (
    WEIGHT_BYTES,
    Times,
    allreduce_link_of,
    line_through,
    link_of,
)
from paceline.calibration.measure import Measured
from paceline.exchange.find_collective import collective
from paceline.timing.profile import ClusterProfile, Link

_NO_LIMIT = 1e15  # bytes/s, where more bytes took no longer


def table(measured: Measured) -> str:
    """Return all numbers with their units as text, one per line."""
    profile, rows = profile_of_measured(measured), []
    for size, seconds in measured.worker.steps.items():
        typical = fmean(seconds)
        rate = f"{size / typical:,.0f} images/s; n={len(seconds):,}, jitter {jitter(seconds):.2f}"
        rows.append((f"step at batch size {size}", f"{milliseconds(typical)}, {rate}"))
    for count, seconds in list(measured.together.items())[1:]:
        speed = f"{speeds(measured)[count]:.2f} times the speed of one"
        rows.append((f"{count} workers at once", f"{milliseconds(seconds)} a step, {speed}"))
    rows += [
        *_of_crowd(measured),
        ("push and pull in training", f"{milliseconds(measured.added['push_pull'])} a step"),
        ("all-reduce in training", f"{milliseconds(measured.added['allreduce'])} a step"),
        ("DistributedDataParallel itself", f"{milliseconds(ddp_seconds(measured))} a step"),
        ("server's work for a push", f"{1e6 * profile.server_seconds:.0f} us"),
        ("server's update of weights", _gigabytes(profile.server_bandwidth)),
        ("loopback, latency each way", f"{1e6 * profile.node_link.latency:.0f} us"),
        ("loopback, bandwidth each way", _gigabytes(profile.node_link.bandwidth)),
        *unused(measured, profile),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def _of_crowd(measured: Measured) -> list[tuple[str, str]]:
    profile, native = profile_of_measured(measured), collective("native")
    rows = []
    for workers, times in measured.crowded.items():
        for size, seconds in times.items():
            modelled = native.seconds(size * WEIGHT_BYTES, workers, profile)
            name = f"all-reduce of {_weights(size)}, {workers} workers"
            rows.append((name, _both_times(seconds, modelled)))
    return rows


def profile_of_measured(measured: Measured) -> ClusterProfile:
    """Return the profile of a modelled cluster that follows from the measurements.

    Fixed costs are taken from the fastest messages, rates from the largest; what a message costs a
    core, from the all-reduce of too many workers for the cores.
    """
    server_seconds, each_weight_byte = line_through(measured.pair["serve"])
    latency, each_byte = link_of(*line_through(measured.pair["push_pull"]))
    full = {size: s for size, s in measured.pair["allreduce"].items() if size >= 4}
    allreduce = line_through(full)  # of fewer weights some messages are empty
    allreduce_latency, each_allreduced = allreduce_link_of(*allreduce, measured.cores)
    profile = ClusterProfile(
        link=Link(0, math.inf),
        node_link=Link(latency, _rate(each_byte)),
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


def exchange_seconds(measured: Measured) -> tuple[float, float]:
    """Return what a push and an all-reduce add to a step besides their own time [seconds]."""
    profile, num_bytes = profile_of_measured(measured), _weight_bytes(measured)
    served = profile.server_seconds + num_bytes / profile.server_bandwidth
    push = 2 * profile.node_link.seconds(num_bytes) + served
    allreduce = collective("native").seconds(num_bytes, 2, profile)
    added = measured.added
    return max(0.0, added["push_pull"] - push), max(0.0, added["allreduce"] - allreduce)


def _of_message(workers: int, times: Times, cores: int) -> tuple[float, float]:
    """Return the time of a core for a message [seconds], and for its bytes [bytes/s]."""
    fixed, each_byte = line_through(times)
    messages = collective("native").node_messages(workers, workers)
    each = fixed * cores / messages.num_messages
    return each, _rate(each_byte * cores / messages.num_vectors)


def _weight_bytes(measured: Measured) -> int:
    return measured.worker.num_parameters * WEIGHT_BYTES


def jitter(seconds: np.ndarray) -> float:
    """Return the sigma of a log-normal factor on the time of a step.

    It is estimated from quantiles, so that a few steps that the system delayed have no effect.
    """
    low, high = np.quantile(np.log(seconds), [0.16, 0.84])
    return float(high - low) / 2


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


def unused(measured: Measured, profile: ClusterProfile) -> list[tuple[str, str]]:
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
    return f"{milliseconds(measured)}; by this profile {milliseconds(modelled)}"


def _weights(count: int) -> str:
    return f"{count:,} weight{'s' if count > 1 else ''}"


def _rate(seconds: float) -> float:
    return 1 / seconds if seconds else math.inf


def milliseconds(seconds: float) -> str:
    """Format a time in milliseconds with three digits."""
    return f"{1e3 * seconds:.3g} ms"


def _gigabytes(bandwidth: float) -> str:
    return f"{bandwidth / 1e9:.3g} GB/s"
