"""Handles of a GPU's memory travel whole between two processes; what is none is refused."""

import json
import socket
import struct

import pytest
import torch
from torch.testing import assert_close

from paceline.exchange.wire import server_wire, shared_memory
from paceline.exchange.wire.connection import Header
from paceline.exchange.wire.server_wire import Computing
from paceline.exchange.wire.shared_memory import share_on_gpu, take_from_gpu

HANDLE = (0, b"\x00handle\xff", 96, 512, b"/counter", 3, b"event", True)  # as torch makes them


class Events:
    """In the place of Signals; the push is complete after so many looks."""

    def __init__(self, device, handles=(b"pushed\x00", b"answered"), looks=0):
        self.handles, self._looks = handles, looks

    def is_complete(self):
        self._looks -= 1
        return self._looks < 0


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
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(shared_memory, "Signals", Events)
    return made


def test_columns_of_a_server_are_the_workers_own_memory(ends, vectors):
    for first, last in ((0, 6), (2, 5), (3, 3)):
        assert share_on_gpu(ends[0], vectors, first, last).handles == Events(None).handles
        (gradient, weights), signals = take_from_gpu(ends[1], last - first, torch.float64)
        assert signals.handles == list(Events(None).handles)
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
    content = json.dumps([[], [2, 6], 4, 8, []]).encode()
    ends[0].sendall(struct.pack("<I", len(content)) + content)
    with pytest.raises(ValueError, match=r"^no 4 values from 4 on, of 6$"):
        take_from_gpu(ends[1], 4, torch.float64)
    ends[0].close()
    with pytest.raises(ConnectionError):
        take_from_gpu(ends[1], 3, torch.float64)


def holding(**looks):
    """Pushes that are complete after so many looks, by worker."""
    computing = Computing(timeout_seconds=60)
    for name, number in looks.items():
        worker = int(name.removeprefix("worker"))
        computing.hold(worker, Header(worker, True), Events(None, looks=number))
    return computing


def test_pushes_are_taken_in_the_order_in_which_gpus_complete_them(monkeypatch):
    computing, found = holding(worker0=2, worker1=0, worker2=1, worker3=0), []
    computing.forget(3)
    computing.forget(7)  # has none here
    while computing:
        found.append(computing.completed(idle=False))
    assert found == [[(worker, Header(worker, True))] for worker in (1, 2, 0)]
    now = iter([5.0, 64.0, 66.0])
    monkeypatch.setattr(server_wire.time, "monotonic", lambda: next(now))
    computing = holding(worker2=9)
    assert computing.completed(idle=False) == []
    with pytest.raises(TimeoutError, match=r"^the GPU of worker 2 computes for 60 s$"):
        computing.completed(idle=False)


def test_an_idle_server_pauses_between_looks_at_a_gpu(monkeypatch):
    """Before, it looked at every push as fast as a core can, for as long as the GPU computed."""
    slept, pauses = [], []
    monkeypatch.setattr(server_wire.time, "sleep", slept.append)
    assert holding().completed(idle=True) == []  # has none to look at
    computing = holding(worker1=3)
    for idle in (True, False, True, True):  # the last finds it complete
        computing.completed(idle=idle)
        pauses.append(len(slept))
    assert pauses == [1, 1, 2, 2]
    assert 0 < max(slept) < 1e-3
