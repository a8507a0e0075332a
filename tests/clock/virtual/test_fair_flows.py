"""Messages that share ports: rates by hand and by plain filling, and times of arrival."""

import math

import numpy as np
import pytest

from paceline.clock.virtual.kernel import Kernel, Moment
from paceline.clock.virtual.virtual_network import FairFlows, max_min_rates


def filled(out, into, num_ports, bandwidth, weights):
    """Raise all rates by weight; those that go through a port that is full stay as they are."""
    rates, growing = [0.0] * len(out), set(range(len(out)))
    while growing:
        free = [bandwidth] * num_ports
        through = [[] for _ in range(num_ports)]
        for flow, ports in enumerate(zip(out, into, strict=True)):
            for port in ports:
                free[port] -= rates[flow]
                through[port] += [flow] if flow in growing else []
        shared = [sum(weights[flow] for flow in each) for each in through]
        step = min(left / each for left, each in zip(free, shared, strict=True) if each)
        for flow in growing:
            rates[flow] += step * weights[flow]
        growing -= {
            flow
            for left, each, sharing in zip(free, through, shared, strict=True)
            for flow in each
            if left / sharing <= step * (1 + 1e-9)
        }
    return rates


@pytest.mark.parametrize("seed", range(30))
def test_rates_are_those_of_plain_filling(seed):
    draw = np.random.default_rng(seed)
    ports, flows = draw.integers(2, 12), draw.integers(1, 60)
    out = draw.integers(0, ports, flows)
    into = ports + draw.integers(0, ports, flows)
    weights = np.exp(draw.normal(0, 0.5 * (seed % 2), flows))
    found = max_min_rates(out, into, 2 * int(ports), 7.0, weights)
    assert found == pytest.approx(filled(out, into, 2 * int(ports), 7.0, weights))
    used = np.bincount(np.concatenate([out, into]), np.tile(found, 2))
    assert used.max() <= 7 * (1 + 1e-9)


def arrivals(messages, num_ports=8, bandwidth=10.0):
    """Times at which (begin, out, into, bytes) have passed."""
    kernel, ends = Kernel(), [math.nan] * len(messages)
    flows = FairFlows(kernel, num_ports, bandwidth)

    def send(number, begin, *message):
        yield Moment(begin)
        yield from flows.send(*message)
        ends[number] = kernel.now

    kernel.begin(send(number, *message) for number, message in enumerate(messages))
    assert not any(kernel.run())
    assert kernel.num_processes == 0
    assert kernel.now == max(ends)
    return ends


def test_many_messages_use_the_whole_of_the_busiest_port():
    draw = np.random.default_rng(5)
    messages = [
        (0, int(out), 8 + int(into), float(size))
        for out, into, size in zip(
            draw.integers(0, 8, 200), draw.integers(0, 3, 200), draw.uniform(1, 9, 200), strict=True
        )
    ]
    ends = arrivals(messages, num_ports=16)
    busiest = max(
        sum(size for _, out, into, size in messages if port in (out, into)) for port in range(16)
    )
    assert busiest / 10 <= max(ends) <= 1.05 * busiest / 10


@pytest.mark.parametrize(
    ("messages", "ends"),
    [
        ([(2, 0, 4, 30)], [5]),
        ([(1, 0, 4, 0), (1, 1, 4, 20)], [1, 3]),  # an empty one takes no time
        ([(0, 0, 4, 30), (0, 1, 4, 30)], [6, 6]),
        ([(0, 0, 4, 30), (0, 1, 5, 30)], [3, 3]),
        ([(0, 0, 4, 30), (1, 1, 4, 30)], [5, 6]),  # ten bytes alone, twenty of each, ten alone
        ([(0, 0, 4, 100), (1, 0, 5, 10)], [11, 3]),  # planned to end at 10, before the short one
    ],
)
def test_messages_that_share_a_port_by_hand(messages, ends):
    assert arrivals(messages) == pytest.approx(ends)
