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


def test_what_is_left_by_a_full_port_goes_to_the_others():
    """Port 0 has three flows; the one that leaves port 1 gets the rest of port 4."""
    out, into = np.array([0, 0, 0, 1]), np.array([3, 4, 5, 4])
    rates = max_min_rates(out, into, 6, 12.0, np.ones(4))
    assert rates == pytest.approx([4, 4, 4, 8])


def test_a_port_is_shared_by_weight():
    """Port 0 by 1 to 3; the last flow, of little weight, gets the rest of port 4."""
    out, into, weights = np.array([0, 0, 1]), np.array([3, 4, 4]), np.array([1, 3, 0.1])
    assert max_min_rates(out, into, 6, 12.0, weights) == pytest.approx([3, 9, 3])


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

    for number, message in enumerate(messages):
        kernel.start(send(number, *message))
    while len(kernel):
        kernel.advance()
    assert kernel.num_processes == 0
    assert kernel.now == max(ends)
    return ends


def test_a_message_by_itself_takes_its_bytes():
    assert arrivals([(2, 0, 4, 30)]) == [5]


def test_two_messages_to_one_port_take_twice_as_long():
    assert arrivals([(0, 0, 4, 30), (0, 1, 4, 30)]) == [6, 6]
    assert arrivals([(0, 0, 4, 30), (0, 1, 5, 30)]) == [3, 3]


def test_a_later_message_slows_the_first_and_is_alone_afterwards():
    """Ten bytes alone, twenty of each by halves until 5, and the last ten alone."""
    assert arrivals([(0, 0, 4, 30), (1, 1, 4, 30)]) == [5, 6]


def test_a_short_message_that_ends_before_what_was_planned():
    """The long one was planned to end at 10; it ends at 11, after the short one at 3."""
    assert arrivals([(0, 0, 4, 100), (1, 0, 5, 10)]) == pytest.approx([11, 3])


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


def test_an_empty_message_takes_no_time():
    assert arrivals([(1, 0, 4, 0), (1, 1, 4, 20)]) == [1, 3]
