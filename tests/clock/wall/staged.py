"""Processes of a point on a CPU whose workers copy as those on a GPU do."""

from contextlib import nullcontext
from functools import partial

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.wall import rule_strategy, wall_links
from tests.unyielding import run as run_plainly


class Stream:
    """What is launched is done at once; `waits`: for whom this stream has waited."""

    def __init__(self, device):
        self.waits = []

    def wait_stream(self, other):
        self.waits.append(other)

    def synchronize(self):
        pass


class Streams:
    """In the place of torch.cuda."""

    Stream = Stream
    main = Stream(None)

    @classmethod
    def current_stream(cls, device):
        return cls.main

    @staticmethod
    def stream(stream):
        return nullcontext()


def apart(parameters, weights, gradient):
    """Vectors that are not those of the wire, as on another device."""
    flat = FlatWeights(parameters, weights.clone(), gradient.clone())
    weights.copy_(flat.weights)
    return flat


def run(point, folder):
    wall_links.staged = partial(wall_links.Staging, streams=Streams)
    rule_strategy.FlatWeights = apart
    return run_plainly(point, folder)
