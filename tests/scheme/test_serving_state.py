"""What a server writes to a checkpoint is plain, and brings another server to the same place."""

import io

import pytest
import torch

from paceline.scheme.serving import Arrival, AtOnce, Bounded, ThenAtOnce, Together

SERVING = {
    "at once": AtOnce,
    "together": lambda: Together(3, 2),
    "bounded": lambda: Bounded(range(3), 1),
    "then at once": lambda: ThenAtOnce(3, 0.5),
}


@pytest.mark.parametrize("build", SERVING.values(), ids=SERVING.keys())
def test_a_server_goes_on_from_its_plain_state(build):
    arrivals = [Arrival(n % 3, 0, n / 9) for n in (0, 0, 1, 2, 2, 1, 0, 1, 2)]
    for before in range(len(arrivals)):
        whole, file = build(), io.BytesIO()
        for arrival in arrivals[:before]:
            whole.arrive(arrival)
        torch.save(whole.state(), file)
        file.seek(0)
        resumed = build()
        resumed.load_state(torch.load(file, weights_only=True))
        for arrival in arrivals[before:]:
            assert resumed.arrive(arrival) == whole.arrive(arrival)
        assert resumed.leave(1) == whole.leave(1)
        assert resumed.pushes_before_a_stop() == whole.pushes_before_a_stop()
