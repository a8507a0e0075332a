"""Lightning strategy of a worker whose gradients are applied by servers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytorch_lightning import Trainer

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.links import AbstractLinks
from paceline.clock.snapshot import Snapshot
from paceline.clock.wall.early_parts import AbstractEarlyParts, PacedParts, RealParts
from paceline.clock.wall.push_link import PushLink
from paceline.clock.wall.rule_strategy import AbstractRuleStrategy
from paceline.clock.wall.wall_links import WallLinks
from paceline.errors import SettingError


class ParameterServerStrategy(AbstractRuleStrategy):
    """Strategy of a worker that pushes to servers, which answer with weights and grant steps.

    With the scheme's `overlap`, pushes to servers of other nodes leave during backward. Raises
    SettingError for it on a GPU, whose gradients are copied from there after backward.
    """

    applied_by = "a parameter server"
    _early: AbstractEarlyParts | None = None

    def _connect(self, trainer: Trainer) -> tuple[FlatWeights, AbstractLinks]:
        """Put weights and gradient into the wire's buffers, so that pushes copy nothing."""
        early = self._early_parts()
        vectors = replace(self.vectors, parts=early.sizes) if early else self.vectors
        self._push = PushLink(self.scheme, self.run, vectors, self._options.read)
        wire = self._push.wire
        flat = FlatWeights(self.held_weights, wire.weights, wire.gradient)
        self._push.begin(wire.weights)
        trainer.should_stop = not self._push.granted
        flat.adopt(wire.weights)
        if early and wire.sends_early:
            early.begin(flat, wire.send_early)
            self._early = early
        return flat, WallLinks(flat, self._statistics, push=self._push)

    @property
    def updates(self) -> int:
        """Updates of server 0's weights when this worker read them last."""
        return self._push.wire.versions[0]

    @property
    def samples(self) -> int:
        return self.run.samples_at(self.accounting.batches(self.updates, self.run.num_steps))

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._push.bytes_exchanged

    def state(self) -> dict[str, Any]:
        read = {"weights": self._flat.weights, "versions": self._push.wire.versions}
        return {**super().state(), "read": read}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the weights that this worker had read, which are not the latest."""
        super().load_state(state)
        self._flat.adopt(state["read"]["weights"])
        self._push.wire.versions = state["read"]["versions"]

    @property
    def stops(self) -> bool:
        return self._push.wire.stops

    def ask_to_stop(self) -> None:
        self._push.wire.ask_to_stop()

    def keep_servers(self) -> None:
        self._push.keep()

    def _leave(self) -> list[Snapshot]:
        if self._early:
            self._early.end()
        return self._push.finish()

    def _finish_backward(self) -> None:
        super()._finish_backward()
        if self._early:
            self._early.finish_backward()

    def _begin_step(self) -> None:
        super()._begin_step()
        self._push.send_numbers()  # which leave with the first part, before the step ends

    def _finish_step(self) -> None:
        self.trained_module().trainer.should_stop = not self._push.granted

    def _early_parts(self) -> AbstractEarlyParts | None:
        """Return the parts in which pushes leave; None if they leave as a whole."""
        if not self.scheme.overlap:
            return None
        if self.root_device.type != "cpu":
            message = f"gradients leave a {self.root_device.type} after backward; false is needed"
            raise SettingError("scheme.overlap", message)
        if self.pace is None:
            return RealParts(self.held_weights)
        num_weights = self.vectors.num_weights
        own_bytes = num_weights * self.held_weights[0].element_size()
        return PacedParts(self.pace, own_bytes, num_weights)
