"""A worker whose gradients are applied by servers, as a Lightning strategy."""

from pytorch_lightning import Trainer
from torch import Tensor

from paceline.engine.flat_weights import FlatWeights
from paceline.engine.snapshot import Snapshot
from paceline.scheme.accounting import Accounting
from paceline.scheme.rule import Adopt, Message, Push
from paceline.wall_clock.rule_strategy import AbstractRuleStrategy
from paceline.wall_clock.server_link import ServerLink


class ParameterServerStrategy(AbstractRuleStrategy):
    by = "a parameter server"

    def _connect(self, trainer: Trainer) -> FlatWeights:
        """Weights and gradient lie in the wire's buffers, so that nothing is copied."""
        self._accounting = Accounting(self.scheme, self.workers)
        self._servers = ServerLink(self.scheme, self.plan)
        self._wire = self._servers.wire
        flat = FlatWeights(self.held, self._wire.weights, self._wire.gradient)
        trainer.should_stop = not self._servers.begin(self._wire.weights)
        flat.adopt(self._wire.weights)
        return flat

    @property
    def updates(self) -> int:
        """Versions of server 0's weights when this worker read them last."""
        return self._wire.versions[0]

    @property
    def samples(self) -> int:
        batches = self._accounting.batches(self.updates, self.plan.num_steps)
        return batches * self.plan.batch_size

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._servers.bytes_exchanged

    def finish(self) -> list[Snapshot]:
        return self._servers.finish()

    def _carry_out(self, message: Message) -> Tensor | None:
        if isinstance(message, Adopt):
            self._flat.adopt(message.weights)
            return None
        assert isinstance(message, Push)
        self._flat.stage_gradient()
        assert self.lightning_module is not None
        self.lightning_module.trainer.should_stop = not self._servers.push(self._statistics)
        return self._wire.weights
