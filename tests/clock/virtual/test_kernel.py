"""The event kernel: order of time, processes that wait, and what happens at one instant."""

from functools import partial

import pytest

from paceline.clock.virtual.kernel import Event, Joint, Kernel, Moment, SingleServer


def run(kernel):
    kernel.settle()
    while len(kernel):
        kernel.advance()


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
        seen.append((yield kernel.start(inner())))
        yield Moment(10)
        seen.append((yield happening))  # it has happened

    kernel.start(outer())
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

    for name in ("first", "second"):
        kernel.start(waiting(name))
    kernel.start(causing())
    run(kernel)
    assert seen == ["cause", "first", "second"]


def test_what_processes_bring_at_one_instant_is_carried_out_at_once():
    kernel, carried_out, seen = Kernel(), [], []
    joint = Joint(kernel, lambda items: carried_out.append((kernel.now, list(items))))

    def bringing(name, seconds):
        yield kernel.after(seconds)
        yield from joint.join(name)
        seen.append(name)

    together = Event()

    def brought(name):
        yield together
        yield from joint.join(name)
        seen.append(name)

    kernel.start(bringing("alone", 1))
    for name in ("one", "other"):
        kernel.start(brought(name))
    kernel.at(2, lambda: kernel.happen(together))
    run(kernel)
    assert carried_out == [(1, ["alone"]), (2, ["one", "other"])]
    assert seen == ["alone", "one", "other"]


def test_a_single_server_serves_urgent_ones_first_and_in_order():
    kernel, served = Kernel(), []
    server = SingleServer(kernel)

    def job(name, urgent=False):
        yield from server.enter(urgent=urgent)
        yield kernel.after(1)
        served.append((name, kernel.now))
        if name == "first":
            for each in ("answer 1", "answer 2"):
                kernel.start(job(each, urgent=True))
        server.leave()

    for name in ("first", "second"):
        kernel.start(job(name))
    run(kernel)
    assert served == [("first", 1), ("answer 1", 2), ("answer 2", 3), ("second", 4)]
    assert kernel.num_processes == 0
