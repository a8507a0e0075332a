"""Lightning strategy of a worker whose gradients are applied by servers."""

from collections.abc import Mapping
from typing import Any

from pytorch_lightning import Trainer

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.links import AbstractLinks
from paceline.clock.snapshot import Snapshot
from paceline.clock.wall.rule_strategy import AbstractRuleStrategy
from paceline.clock.wall.wall_links import ServedLinks


class ParameterServerStrategy(AbstractRuleStrategy):
    """Strategy of a worker that pushes to servers, which answer with weights and grant steps."""

    applied_by = "a parameter server"

    def _connect(self, trainer: Trainer) -> tuple[FlatWeights, AbstractLinks]:
        """Put weights and gradient into the wire's buffers, so that pushes copy nothing."""
        self.push = self._push = self._push_link(self.vectors)
        wire = self._push.wire
        flat = FlatWeights(self.held_weights, wire.weights, wire.gradient)
        self._push.begin(wire.weights)
        trainer.should_stop = not self._push.granted
        flat.adopt(wire.weights)
        return flat, ServedLinks(flat, self._push)

    @property
    def updates(self) -> int:
        """Updates of server 0's weights when this worker last read them."""
        return self._push.wire.versions[0]

    @property
    def samples(self) -> int:
        return self.run.samples_at(self.counts.batches(self.updates, self.run.num_steps))

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._push.bytes_exchanged

    def state(self) -> dict[str, Any]:
        read = {"weights": self._flat.weights, "versions": self._push.wire.versions}
        return {**super().state(), "read": read}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue with the weights that this worker had read, which are not the latest."""
        super().load_state(state)
        self._flat.adopt(state["read"]["weights"])
        self._push.wire.versions = state["read"]["versions"]

    def _leave(self) -> list[Snapshot]:
        return self._push.finish()

    def _finish_step(self) -> None:
        self._trainer.should_stop = not self._push.granted
