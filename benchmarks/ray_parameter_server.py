"""Ray's asynchronous parameter server, as its documentation describes it.

https://docs.ray.io/en/latest/ray-core/examples/plot_parameter_server.html: the server and each
worker are actors. A driver waits for any worker's gradients, hands them to the server, and the
server's weights back to that worker. Weights are numpy arrays here, as gradients are there too:
torch's tensors, which Ray copies, are slower.
"""

import os
import tempfile
import time

import numpy as np
import ray
import torch

from benchmarks.plain_parts import batches, gradients, network, optimizer
from paceline.record.point import Point

Weights = dict[str, np.ndarray]
Gradients = list[np.ndarray]
SETTLING = 4  # seconds, in which Ray starts processes for later


def measure(points: list[Point]) -> list[list[np.ndarray]]:
    """Of each point, when each worker's gradients were ready [seconds]."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with tempfile.TemporaryDirectory() as folder:
        ray.init(
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=folder,
        )
        time.sleep(SETTLING)
        found = [_train(point) for point in points]
        ray.shutdown()
    return found


def _train(point: Point) -> list[np.ndarray]:
    server = Server.remote(point)
    workers = [Worker.remote(point, number) for number in range(point.workers)]
    weights = server.get_weights.remote()
    under_way = {
        worker.compute_gradients.remote(weights): number for number, worker in enumerate(workers)
    }
    ends: list[list[float]] = [[] for _ in workers]
    for _ in range(int(point.training.samples or 0) // point.batch_size):
        (ready,), _ = ray.wait(list(under_way))
        number = under_way.pop(ready)
        ends[number].append(time.perf_counter())
        weights = server.apply_gradients.remote(ready)
        under_way[workers[number].compute_gradients.remote(weights)] = number
    return [np.array(each) for each in ends]


@ray.remote
class Server:
    def __init__(self, point: Point) -> None:
        self._network = network(point)
        self._optimizer = optimizer(point, self._network)

    def apply_gradients(self, *pushed: Gradients) -> Weights:
        weights = self._network.parameters()
        for weight, parts in zip(weights, zip(*pushed, strict=True), strict=True):
            weight.grad = torch.from_numpy(np.stack(parts).sum(axis=0))
        self._optimizer.step()
        return self.get_weights()

    def get_weights(self) -> Weights:
        return {name: value.numpy() for name, value in self._network.state_dict().items()}


@ray.remote
class Worker:
    def __init__(self, point: Point, number: int) -> None:
        self._network = network(point)
        self._batches = iter(batches(point, number))

    def compute_gradients(self, weights: Weights) -> Gradients:
        state = {name: torch.from_numpy(value) for name, value in weights.items()}
        self._network.load_state_dict(state)
        self._network.zero_grad()
        found = gradients(self._network, next(self._batches))
        return [gradient.numpy() for gradient in found]
