"""torch.distributed.rpc's parameter server, as the batch example of its documentation has it.

https://docs.pytorch.org/tutorials/intermediate/rpc_async_execution.html: a worker's gradients go
to the server in a call, whose answer is the model. The example updates when some number of
gradients has come; asynchronous, as here, that number is one. (The tutorial that is called after
parameter servers computes all forward and backward passes in the server's process.)
"""

import os
import threading
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed import rpc

from benchmarks.plain_parts import batches, gradients, network, optimizer
from paceline.exchange.process_group import STORE
from paceline.record.point import Point


class Server:
    def __init__(self, point: Point) -> None:
        self._network = network(point)
        self._optimizer = optimizer(point, self._network)
        self._lock = threading.Lock()

    def get_network(self) -> nn.Module:
        return self._network

    @staticmethod
    @rpc.functions.async_execution
    def update(server: rpc.RRef, pushed: list[Tensor]) -> torch.futures.Future:
        """The updated network, in future."""
        self = server.local_value()
        updated: torch.futures.Future = torch.futures.Future()
        with self._lock:
            for weight, gradient in zip(self._network.parameters(), pushed, strict=True):
                weight.grad = gradient
            self._optimizer.step()
            updated.set_result(self._network)
        return updated


def measure(point: Point) -> list[np.ndarray]:
    """In each process. The last serves, and returns when each worker's steps ended [seconds]."""
    torch.set_num_threads(1)
    os.environ["TP_SOCKET_IFNAME"] = "lo"  # it takes pickles from anybody
    rank, workers = int(os.environ["RANK"]), point.workers
    store = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{os.environ[STORE]}_of_rpc")
    rpc.init_rpc(f"process{rank}", rank=rank, world_size=workers + 1, rpc_backend_options=store)
    ends = _start(point) if rank == workers else []
    rpc.shutdown()  # waits for all calls
    return ends


def _start(point: Point) -> list[np.ndarray]:
    server = rpc.RRef(Server(point))
    training = [
        rpc.rpc_async(f"process{worker}", _train, (server, point, worker), timeout=0)
        for worker in range(point.workers)
    ]
    return torch.futures.wait_all(training)


def _train(server: rpc.RRef, point: Point, worker: int) -> np.ndarray:
    torch.set_num_threads(1)
    steps = int(point.training.samples or 0) // point.batch_size // point.workers
    own, ends = iter(batches(point, worker)), []
    trained = server.rpc_sync().get_network()
    for _ in range(steps):
        found = gradients(trained, next(own))
        trained = rpc.rpc_sync(server.owner(), Server.update, (server, found))
        ends.append(time.perf_counter())
    return np.array(ends)
