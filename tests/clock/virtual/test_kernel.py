"""The event kernel: order of time, processes that wait, and what happens at one instant."""

from functools import partial

import pytest

from paceline.clock.virtual.kernel import Event, Kernel, Moment, Operation


def run(kernel):
    return [each for each in kernel.run() if each is not None]


def test_calls_happen_in_order_of_time_and_then_of_planning():
    called, kernel = [], Kernel()
    for time, name in ((2, "late"), (1, "first"), (1, "second")):
        kernel.at(time, partial(called.append, name))
    run(kernel)
    assert called == ["first", "second", "late"]
    with pytest.raises(ValueError, match="planned for 1, and it is 2"):
        kernel.at(1, called.clear)


def test_a_process_waits_for_moments_events_and_other_processes():
    kernel, happening, seen = Kernel(), Event(), []

    def inner():
        yield kernel.after(2)
        return "ended"

    def outer():
        seen.append((yield happening))
        ended = yield from kernel.start(inner())
        seen.append((yield ended))
        yield Moment(10)
        seen.append((yield happening))  # it has happened

    kernel.begin([outer()])
    kernel.at(1, lambda: kernel.happen(happening, "happened"))
    assert kernel.num_processes == 1
    run(kernel)
    assert seen == ["happened", "ended", "happened"]
    assert (kernel.now, kernel.num_processes) == (10, 0)


def test_nobody_goes_on_inside_the_call_that_lets_an_event_happen():
    """Whoever calls it may still have state to leave in order."""
    kernel, happening, seen = Kernel(), Event(), []

    def waiting(name):
        yield happening
        seen.append(name)

    def causing():
        yield kernel.after(1)
        kernel.happen(happening)
        seen.append("cause")

    kernel.begin([waiting("first"), waiting("second"), causing()])
    run(kernel)
    assert seen == ["cause", "first", "second"]


def test_operations_come_in_order_before_their_process_goes_on():
    kernel, seen = Kernel(), []

    def inner():
        yield Operation("inner", 1)
        yield kernel.after(1)

    def outer(name):
        yield Operation(name, 2, 3)
        seen.append(name)
        yield from kernel.start(inner())

    kernel.begin(map(outer, ("first", "second")))
    for operation in kernel.run():
        seen.append(operation)
    inside = ("inner", 1)
    assert seen[:6] == [("first", 2, 3), "first", inside, ("second", 2, 3), "second", inside]
    assert not any(seen[6:])
    assert kernel.now == 1
