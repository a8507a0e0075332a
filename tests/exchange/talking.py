"""Processes that push and pull a little, and tell what they saw."""

import os
import secrets
import signal
import socket
import time

import torch
import torch.distributed as dist

from paceline.cluster.child import tolerate
from paceline.exchange.liveness import Lost
from paceline.exchange.process_group import join, joined, leave, receive_json, send_json
from paceline.exchange.shard import shard_bounds
from paceline.exchange.wire.connection import (
    HEADER_BYTES,
    Address,
    Header,
    Hello,
    Pieces,
    bytes_of,
    pack,
)
from paceline.exchange.wire.server_wire import ServerWire
from paceline.exchange.wire.worker_wire import WorkerWire

NUM_WEIGHTS, NUM_STATISTICS = 7, 2
TEXT = {"größe": "µ, 学习率 🚀", "numbers": [1, None, 0.1, 2**53 + 1], "empty": ""}
FIRST, SECOND = 2**24 + 1, 2**53 + 1  # versions that float32 and float64 cannot hold


WIRES = {"shared memory": None, "TCP": "another node"}  # where a worker says that it is


def talk(parts):
    """The token of this process, and what each part returns: a function here, and a wire's node."""
    join(60, "cpu")
    seen = [joined().token]
    for name, node in parts:
        seen.append(globals()[name](node))
        dist.barrier()  # nobody's next part meets this one
    leave()
    return seen


def one_worker(node):
    """Process 0 works, the others serve: server s answers with weights third * position + s."""
    bounds = shard_bounds(NUM_WEIGHTS, dist.get_world_size() - 1)
    server = dist.get_rank() - 1
    return _work(bounds, node) if server < 0 else _serve(server, *bounds[server])


def _work(bounds, node):
    wire = WorkerWire(bounds, NUM_STATISTICS, torch.float64, first_server=1, node=node)
    told = [wire.pull()]
    pulled, versions = [wire.weights.tolist()], [list(wire.versions)]
    wire.gradient.copy_(torch.arange(NUM_WEIGHTS, dtype=torch.float64) / 7)
    wire.statistics.copy_(torch.tensor([0.1, 0.2], dtype=torch.float64))
    told.append(wire.push_pull())
    pulled.append(wire.weights.tolist())
    versions.append(list(wire.versions))
    wire.leave()
    send_json(TEXT, 1)
    sent = (wire.bytes_sent, wire.bytes_received)
    return {"proceed": told, "pulled": pulled, "versions": versions, "bytes": sent}


def _serve(server, first, last):
    weights = torch.arange(first, last, dtype=torch.float64) / 3
    wire = ServerWire(weights, NUM_STATISTICS if server == 0 else 0, workers=[0])
    wire.answer(0, Header(FIRST + server, True))
    received = [wire.receive()]
    wire.weights.neg_()
    wire.answer(0, Header(SECOND + server, server != 0))
    received.append(wire.receive())
    return {
        "received": [(worker, header.version, header.proceed) for worker, header in received],
        "gradient": wire.gradient(0).tolist(),
        "statistics": wire.statistics(0).tolist(),
        "text": receive_json(0) if server == 0 else None,
        "bytes": (wire.bytes_sent, wire.bytes_received),
    }


def _serve_workers(num_weights, num_statistics=0):
    """Add what two workers push, until each has left or is lost: what came in which order, the ends
    of the weights and of each worker's last gradient.
    """
    wire, order = ServerWire(torch.zeros(num_weights), num_statistics, workers=range(2)), []
    tolerate([1])
    for worker in range(2):
        wire.answer(worker, Header(0, True))
    training = set(range(2))
    while training:
        worker, message = wire.receive()
        order.append((worker, *message[:2]))
        if isinstance(message, Lost):
            send_json("go", 0)
        if isinstance(message, Lost) or not message.proceed:
            training.remove(worker)
        else:
            wire.weights.add_(wire.gradient(worker))
            wire.answer(worker, Header(len(order), True))
    wire.flush()
    return {
        "order": order,
        "weights": wire.weights[[0, -1]].tolist(),
        "kept": [wire.gradient(worker)[[0, -1]].tolist() for worker in range(2)],
        "statistics": [wire.statistics(worker).tolist() for worker in range(2)],
        "bytes": (wire.bytes_sent, wire.bytes_received),
    }


def two_workers(node):
    """Worker 1 pushes and leaves; only then worker 0, which waited for nothing, pushes."""
    worker = dist.get_rank()
    return _serve_workers(3) if worker == 2 else _work_in_turn(worker, node)


def _work_in_turn(worker, node):
    wire = WorkerWire([(0, 3)], 0, torch.float32, first_server=2, node=node)
    wire.pull()
    wire.gradient.fill_(worker + 1)
    if worker == 0:
        receive_json(1)
    wire.push_pull()
    wire.leave()
    if worker == 1:
        send_json("go", 0)
    return wire.weights.tolist()


def strangers(node):
    """Worker 0 calls as who is none of the run; then both workers push once."""
    worker = dist.get_rank()
    if worker == 2:
        return _serve_workers(3)
    wire = WorkerWire([(0, 3)], 0, torch.float32, first_server=2, node=node)
    address, hello = Address(*receive_json(2)), Hello(1, 12, 12).pack()
    sent = [b"", hello, hello + joined().token, bytes(32) + hello, secrets.token_bytes(32) + hello]
    callers = [_call(address, node) for _ in sent] if worker == 0 else []
    for caller, said in zip(callers, sent, strict=False):
        caller.sendall(said)  # of which the first stays silent
    heard = [_heard(caller) for caller in callers[1:]]
    wire.connect([address])
    wire.pull()
    wire.gradient.fill_(worker + 1)
    wire.push_pull()
    wire.leave()
    return heard + [_heard(caller) for caller in callers[:1]]


def _call(address, node):
    if node is not None:
        return socket.create_connection((address.host, address.port), 20)
    caller = socket.socket(socket.AF_UNIX)
    caller.settimeout(20)
    caller.connect(f"\0{address.local}")
    return caller


def _heard(caller):
    """All that comes until the server ends the connection."""
    with caller:
        try:
            return caller.recv(4096)
        except ConnectionError:
            return b""


LARGE = 1_000_000  # weights: no socket holds a push of as many
HUGE = 10_000_000  # nor both ends of a connection together


def slow_reader(node):
    """Worker 0 takes its first answer when worker 1 has pushed twice."""
    worker = dist.get_rank()
    return _serve_workers(HUGE) if worker == 2 else _pull_late(worker, node)


def _pull_late(worker, node):
    wire = WorkerWire([(0, HUGE)], 0, torch.float32, first_server=2, node=node)
    if worker == 0:
        wire.connect([Address(*receive_json(2))])
        receive_json(1)
    wire.pull()
    if worker == 1:
        wire.gradient.fill_(1)
        wire.push_pull()
        wire.push_pull()
        send_json("go", 0)
    wire.leave()
    return wire.weights[[0, -1]].tolist(), wire.versions


def crossing(node):
    """Process 1 is served first, and its answer, once gone, lets process 2 take its push."""
    rank = dist.get_rank()
    return _push_to_both(node) if rank == 0 else _serve_after_another(rank)


def _push_to_both(node):
    bounds = [(0, HUGE), (HUGE, 2 * HUGE)]
    wire = WorkerWire(bounds, 0, torch.float32, first_server=1, node=node)
    wire.pull()
    wire.gradient.fill_(1)
    wire.push_pull()
    wire.leave()
    return wire.weights[[0, HUGE - 1, HUGE, -1]].tolist()


def _serve_after_another(rank):
    wire = ServerWire(torch.full((HUGE,), float(rank)), 0, workers=[0])
    wire.answer(0, Header(0, True))
    wire.flush()
    if rank == 2:
        receive_json(1)
    wire.receive()
    sign = 1 if rank == 2 else -1
    wire.weights.add_(wire.gradient(0), alpha=sign)
    wire.answer(0, Header(1, True))
    wire.flush()
    if rank == 1:
        send_json("go", 2)
    wire.receive()


def one_is_lost(node, how):
    """Worker 1 pushes once, and is lost in its second push; worker 0 pushes after that."""
    join(20, "cpu")
    worker = dist.get_rank()
    seen = _serve_workers(LARGE, 1) if worker == 2 else _work_or_die(worker, node, how)
    leave()
    return seen


def _work_or_die(worker, node, how):
    wire = WorkerWire([(0, LARGE)], 1, torch.float32, 2, node)
    wire.pull()
    if worker == 0:
        receive_json(2)  # the other is lost
    wire.gradient.fill_(worker + 1)
    wire.statistics.fill_(worker + 1)
    wire.push_pull()
    if worker == 1:
        wire.gradient[: LARGE // 2] = 100
        wire.statistics.fill_(100)
        FAULTS[how](wire)
        wire.pull()  # raises where it is not dead yet
    wire.leave()
    return wire.weights[[0, -1]].tolist()


def _die_with_a_child(wire):
    """A child outlives the patience of all others."""
    if os.fork() == 0:
        time.sleep(25)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def _die_in_a_push(wire):
    """With half the gradient on its way."""
    push = pack(Header(wire.versions[0], True))
    wire._ends[0]._send(Pieces(memoryview(push), bytes_of(wire.gradient)[: 2 * LARGE]))
    os.kill(os.getpid(), signal.SIGKILL)


def _send_noise(wire):
    wire._ends[0]._send(Pieces(memoryview(b"\xff" * HEADER_BYTES)))


FAULTS = {
    "killed with a child": _die_with_a_child,
    "killed in a push": _die_in_a_push,
    "noise": _send_noise,
}
