"""Gradients of 16 bits: against torch's hooks, and the length of their messages."""

import pytest

from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.timing.profile import ClusterProfile, Link
from tests.clock.virtual.trained import train
from tests.tiny import CLOCKS, run_tiny, tiny_point

WORKERS = 4
SLOW = ClusterProfile(Link(0.0, 100.0), Link(0.0, 100.0), 1, 0.0, 100.0)


@pytest.mark.slow
def test_half_precision_is_that_of_torchs_hook_to_a_rounding(tmp_path):
    ends = {}
    for clock, compression in [("wall", "bf16"), ("virtual", "bf16"), ("virtual", "none")]:
        folder = tmp_path / f"{clock} {compression}"
        folder.mkdir()
        settings = {"scheme__compression": compression, **CLOCKS[clock]}
        config = tiny_point("sync_allreduce", 2, 8, **settings)
        ends[clock, compression] = run_tiny(config, folder)[1]["1.weight"]
    torchs, ours, exact = ends.values()
    assert (ours - torchs).norm() < (ours - exact).norm() < 0.01 * exact.norm()


def test_messages_are_as_long_as_compressed_ones():
    """80 + 5 + 15 + 3 weights of 8 bytes."""
    sent, ended = {}, {}
    for name in ("none", "bf16"):
        strategy, _ = train(SyncAllReduce(compression=name), 2, 20, profile=SLOW)
        sent[name] = strategy.clock.workers[0].bytes_sent
        ended[name] = strategy.clock.kernel.now
    assert sent["none"] == 10 * 103 * 8
    assert sent["bf16"] == 10 * 103 * 2
    assert ended["none"] > ended["bf16"]
