"""What a block's alternatives are left out for: by trying them, not by a list."""

from types import SimpleNamespace

import torch
from torch import nn

from paceline.prediction.blocks import ALTERNATIVES, PLAIN, Alternative, Block
from paceline.prediction.measure_blocks import MeasuredBlock, timed

IMAGES = torch.rand(4, 3, 6, 6, generator=torch.Generator().manual_seed(0)).requires_grad_()


def measured(*modules):
    torch.manual_seed(0)
    return MeasuredBlock(Block("b", [module() for module in modules]), IMAGES)


def convolution():
    return nn.Conv2d(3, 4, 3)


def test_all_can_be_had_of_a_convolution_and_a_normalization():
    assert measured(convolution, lambda: nn.BatchNorm2d(4)).failed == {}


def test_what_raises_is_left_out_with_its_reason():
    class Whole(nn.Module):
        def forward(self, value):
            if value.dtype == torch.bfloat16:
                raise RuntimeError("no kernel\nfor this")
            return value

    block = measured(convolution, Whole)
    assert block.failed == {each: "no kernel" for each in ALTERNATIVES if each.precision == "bf16"}


def test_what_has_other_gradients_is_left_out():
    class Forgetful(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 1, 1))
            self.calls = 0

        def forward(self, value):
            self.calls += 1
            return value * self.weight * self.calls  # a recomputation finds another number

    failed = measured(Forgetful).failed
    assert Alternative(recompute=True) in failed
    assert failed[Alternative(recompute=True)].startswith("gradients differ by ")
    assert PLAIN not in failed


def test_nothing_is_had_of_a_block_that_changes_what_it_is_given():
    failed = measured(lambda: nn.ReLU(inplace=True)).failed
    assert PLAIN in failed


def test_seconds_are_those_of_forward_and_backward_by_each_alternative(monkeypatch):
    """On a clock that only this layer moves: 1 s, in bf16 3 s; recomputed, it runs twice."""
    clock = SimpleNamespace(now=0.0)

    class Slow(nn.Module):
        def forward(self, value):
            clock.now += 3 if value.dtype == torch.bfloat16 else 1
            return value.square()  # which keeps its input, so that it is recomputed

    block = measured(convolution, Slow)
    stopped = SimpleNamespace(perf_counter=lambda: clock.now)
    monkeypatch.setattr("paceline.prediction.measure_blocks.time", stopped)
    monkeypatch.setattr(block, "_convert", lambda: setattr(clock, "now", clock.now + 7))
    for _ in range(3):
        block.measure()
    costs = block.costs()
    assert costs.conversion_seconds == 7
    found = {option.alternative: option.seconds for option in costs.options}
    assert found == {
        each: (3 if each.precision == "bf16" else 1) * (2 if each.recompute else 1)
        for each in ALTERNATIVES
    }


def test_calls_are_timed_until_they_have_taken_long_enough_and_once_at_least(monkeypatch):
    """A call takes 2 s, and what comes before it 5 s, which do not count."""
    clock = SimpleNamespace(now=0.0, calls=0)
    stopped = SimpleNamespace(perf_counter=lambda: clock.now)
    monkeypatch.setattr("paceline.prediction.measure_blocks.time", stopped)

    def work():
        clock.now, clock.calls = clock.now + 2, clock.calls + 1

    for least, calls in ((0, 1), (2, 1), (5, 3)):
        clock.calls = 0
        assert timed(work, least, lambda: setattr(clock, "now", clock.now + 5)) == 2
        assert clock.calls == calls


def test_calls_on_a_gpu_are_timed_by_its_own_clock_without_waiting_between_them(monkeypatch):
    """The GPU takes 2 s for a call, and stands still for 5 s before it; launching takes 1 s."""
    clock, waits = SimpleNamespace(launched=0.0, done=0.0), []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = clock.done

        def elapsed_time(self, other):
            return 1000 * (other.at - self.at)

    def before():
        clock.done += 5

    def work():
        clock.launched, clock.done = clock.launched + 1, clock.done + 2

    cuda = SimpleNamespace(
        is_initialized=lambda: True, Event=Event, synchronize=lambda: waits.append(clock.launched)
    )
    monkeypatch.setattr("paceline.prediction.measure_blocks.torch.cuda", cuda)
    stopped = SimpleNamespace(perf_counter=lambda: clock.launched)
    monkeypatch.setattr("paceline.prediction.measure_blocks.time", stopped)
    assert timed(work, 3, before) == 2
    assert waits == [0, 3]
