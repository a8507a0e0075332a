"""Lightning strategy of a worker whose gradients are applied by servers."""

from pytorch_lightning import Trainer

from paceline.engine.flat_weights import FlatWeights
from paceline.engine.links import AbstractLinks
from paceline.engine.snapshot import Snapshot
from paceline.wall_clock.push_link import PushLink
from paceline.wall_clock.rule_strategy import AbstractRuleStrategy
from paceline.wall_clock.wall_links import WallLinks


class ParameterServerStrategy(AbstractRuleStrategy):
    """Strategy of a worker that pushes to servers, which answer with weights and grant steps."""

    applied_by = "a parameter server"

    def _connect(self, trainer: Trainer) -> tuple[FlatWeights, AbstractLinks]:
        """Put weights and gradient into the wire's buffers, so that pushes copy nothing."""
        self._push = PushLink(self.scheme, self.spec)
        wire = self._push.wire
        flat = FlatWeights(self.held_weights, wire.weights, wire.gradient)
        self._push.begin(wire.weights)
        trainer.should_stop = not self._push.granted
        flat.adopt(wire.weights)
        return flat, WallLinks(flat, self._statistics, push=self._push)

    @property
    def updates(self) -> int:
        """Updates of server 0's weights when this worker read them last."""
        return self._push.wire.versions[0]

    @property
    def samples(self) -> int:
        batches = self.accounting.batches(self.updates, self.spec.num_steps)
        return batches * self.spec.batch_size

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._push.bytes_exchanged

    def finish(self) -> list[Snapshot]:
        return self._push.finish()

    def _finish_step(self) -> None:
        self.trained_module().trainer.should_stop = not self._push.granted
