"""Optimizer of a worker whose updates are applied outside of Lightning."""

from collections.abc import Callable
from typing import Any

from torch.optim import Optimizer


class RemoteOptimizer(Optimizer):
    """Optimizer that runs the closure, then `exchange`, and has no state of its own.

    Its groups are those of `optimizer`. `zero()` clears the gradients in place, because they are
    views of the vector that is sent.
    """

    def __init__(
        self, optimizer: Optimizer, zero: Callable[[], Any], exchange: Callable[[], None]
    ) -> None:
        super().__init__(optimizer.param_groups, dict(optimizer.defaults))
        self.param_groups = optimizer.param_groups
        self._zero = zero
        self._exchange = exchange

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the options of the groups, which stay those of `optimizer`."""
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update((key, value) for key, value in saved.items() if key != "params")

    def zero_grad(self, set_to_none: bool = True) -> None:
        self._zero()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = closure() if closure is not None else None
        self._exchange()
        return loss
