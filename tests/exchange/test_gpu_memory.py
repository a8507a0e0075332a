"""Handles of a GPU's memory travel whole between two processes; what is none is refused."""

import json
import socket
import struct

import pytest
import torch
from torch.testing import assert_close

from paceline.exchange.wire.gpu_memory import share_on_gpu, take_from_gpu

HANDLE = (0, b"\x00handle\xff", 96, 512, b"/counter", 3, b"event", True)  # as torch makes them


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def vectors(monkeypatch):
    """On a CPU: torch's handle of them opens their own storage."""
    made = torch.arange(12, dtype=torch.float64).view(2, 6)

    def opened(*handle):
        assert handle == HANDLE
        return made.untyped_storage()

    monkeypatch.setattr(torch.UntypedStorage, "_share_cuda_", lambda storage: HANDLE)
    monkeypatch.setattr(torch.UntypedStorage, "_new_shared_cuda", opened)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    return made


def test_columns_of_a_server_are_the_workers_own_memory(ends, vectors):
    for first, last in ((0, 6), (2, 5), (3, 3)):
        share_on_gpu(ends[0], vectors, first, last)
        gradient, weights = take_from_gpu(ends[1], last - first, torch.float64)
        assert_close(gradient, vectors[0, first:last], rtol=0, atol=0)
        weights.fill_(-1.0)
        assert (vectors[1, first:last] == -1.0).all()


def test_what_is_no_handle_is_refused(ends, vectors):
    share_on_gpu(ends[0], vectors, 2, 5)
    with pytest.raises(ValueError, match=r"^no 4 values from 2 on, of 6$"):
        take_from_gpu(ends[1], 4, torch.float64)
    for length in (0, 5000):
        ends[0].sendall(struct.pack("<I", length))
        with pytest.raises((ConnectionError, ValueError)):
            take_from_gpu(ends[1], 3, torch.float64)
    content = json.dumps([[], [2, 6], 4, 8]).encode()
    ends[0].sendall(struct.pack("<I", len(content)) + content)
    with pytest.raises(ValueError, match=r"^no 4 values from 4 on, of 6$"):
        take_from_gpu(ends[1], 4, torch.float64)
    ends[0].close()
    with pytest.raises(ConnectionError):
        take_from_gpu(ends[1], 3, torch.float64)
