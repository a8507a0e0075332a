"""What a process of a point knows of itself from its launcher."""

import pytest
import torch.distributed as dist

from paceline.exchange import process_group
from paceline.exchange.process_group import Division, local_rank, shard_index, worker_index


@pytest.mark.parametrize(
    ("environment", "found"),
    [({"RANK": "5", "LOCAL_RANK": "1"}, 1), ({"RANK": "5"}, 5), ({}, 0)],
)
def test_the_accelerator_of_a_process_is_that_of_its_local_rank(environment, found, monkeypatch):
    """Of eight workers on two machines, the sixth is the second of its machine."""
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert local_rank() == found


@pytest.mark.parametrize("shards", [None, 2, 4])
def test_ranks_are_dealt_to_workers_one_after_the_other(shards, monkeypatch):
    division = Division(shards, None, None, None) if shards else None
    monkeypatch.setattr(process_group, "_division", division)
    places = []
    for rank in range(8):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        places.append((worker_index(), shard_index()))
    size = shards or 1
    assert places == [(worker, shard) for worker in range(8 // size) for shard in range(size)]
