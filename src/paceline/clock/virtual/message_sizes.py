"""Sizes of messages on the virtual clock: those of the workload, not of the trained network."""

from collections.abc import Sequence

from paceline.exchange.shard import round_robin
from paceline.scheme.rule import Sharding
from paceline.timing.workload import AbstractWorkload, Bucket


class MessageSizes:
    """Sizes of all messages of a run.

    `own_bytes`: bytes of the trained network's weights. `overlap`: False if gradients are reduced
    as a whole after backward.
    """

    def __init__(self, workload: AbstractWorkload, own_bytes: int, *, overlap: bool) -> None:
        self._workload, self._own_bytes, self._overlap = workload, own_bytes, overlap

    def weights(self, num_bytes: int) -> int:
        """Return the bytes of a message with `num_bytes` of the trained network's weights."""
        return self._workload.message_bytes(num_bytes, self._own_bytes)

    def shards(self, shard_bytes: Sequence[int], sharding: Sharding) -> list[int]:
        """Return the bytes of a message with the weights of each server.

        `shard_bytes`: bytes of these in the trained network. Whole tensors are those of the
        workload, where it lists them.
        """
        tensors = self._workload.sizes_of_tensors if sharding == "round_robin" else ()
        if not tensors:
            return [self.weights(num_bytes) for num_bytes in shard_bytes]
        total, parts = self.weights(self._own_bytes), round_robin(len(tensors), len(shard_bytes))
        shares = [sum(tensors[n] for n in part) for part in parts]
        return [total * share // sum(tensors) for share in shares]

    def statistics(self, num_bytes: int) -> int:
        """Return the bytes of BatchNorm statistics; the trained network has `num_bytes`."""
        return self._workload.statistics_bytes(num_bytes)

    def parts(self) -> Sequence[Bucket]:
        """Return the parts of a step's gradients by layer, in the order of backward."""
        return self._workload.parts(self._own_bytes)

    def buckets(self) -> Sequence[Bucket]:
        """Return the parts of a step's gradients in the order in which they are reduced."""
        if not self._overlap:
            return [Bucket(self.weights(self._own_bytes), 1.0)]
        return self._workload.buckets(self._own_bytes)
