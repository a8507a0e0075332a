"""Processes that push and pull a little, and tell what they saw."""

import torch
import torch.distributed as dist

from paceline.exchange.message import receive_json, send_json
from paceline.exchange.process_group import join, leave
from paceline.exchange.push_pull import Header, ServerWire, WorkerWire
from paceline.exchange.shard import shard_bounds

NUM_WEIGHTS, NUM_STATISTICS = 7, 2
TEXT = {"größe": "µ, 学习率 🚀", "numbers": [1, None, 0.1, 2**53 + 1], "empty": ""}
FIRST, SECOND = 2**24 + 1, 2**53 + 1  # versions that float32 and float64 cannot hold


WIRES = {"shared memory": None, "TCP": "another node"}  # where a worker says that it is


def one_worker(servers, node):
    """Process 0 works, the others serve: server s answers with weights third * position + s."""
    join(20, "cpu")
    bounds = shard_bounds(NUM_WEIGHTS, servers)
    server = dist.get_rank() - 1
    seen = _work(bounds, node) if server < 0 else _serve(server, *bounds[server])
    leave()
    return seen


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
    wire = ServerWire(last - first, NUM_STATISTICS if server == 0 else 0, torch.float64, workers=1)
    wire.weights.copy_(torch.arange(first, last, dtype=torch.float64) / 3)
    wire.answer(0, Header(FIRST + server, True))
    received = [wire.receive()]
    wire.weights.neg_()
    wire.answer(0, Header(SECOND + server, server != 0))
    received.append(wire.receive())
    return {
        "received": [(worker, *header) for worker, header in received],
        "gradient": wire.gradient(0).tolist(),
        "statistics": wire.statistics(0).tolist(),
        "text": receive_json(0) if server == 0 else None,
        "bytes": (wire.bytes_sent, wire.bytes_received),
    }


def two_workers(node):
    """Worker 1 pushes and leaves; only then worker 0, which waited for nothing, pushes."""
    join(20, "cpu")
    worker = dist.get_rank()
    seen = _serve_two() if worker == 2 else _work_in_turn(worker, node)
    leave()
    return seen


def _work_in_turn(worker, node):
    wire = WorkerWire([(0, 3)], 0, torch.float64, first_server=2, node=node)
    wire.pull()
    wire.gradient.fill_(worker + 1)
    if worker == 0:
        receive_json(1)
    wire.push_pull()
    wire.leave()
    if worker == 1:
        send_json("go", 0)
    return wire.weights.tolist()


def _serve_two():
    wire = ServerWire(3, 0, torch.float64, workers=2)
    for worker in range(2):
        wire.answer(worker, Header(0, True))
    order = []
    for _ in range(4):
        worker, header = wire.receive()
        order.append((worker, header.proceed))
        if header.proceed:
            wire.weights.add_(wire.gradient(worker))
            wire.answer(worker, Header(len(order), True))
    return {"order": order, "kept": [wire.gradient(worker).tolist() for worker in range(2)]}
