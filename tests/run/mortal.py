"""A classifier that kills its own process once, in the middle of a run."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.classifiers import ActingClassifier, with_periods


class MortalClassifier(ActingClassifier):
    """Each process dies before its step of this number, unless its file in `graves` is there: or
    before a later one, if no checkpoint is beside the graves yet.
    """

    def __init__(
        self, network: Any, optimizer: Any, graves: str, turn: int, periods: Sequence[int] = ()
    ) -> None:
        super().__init__(network, optimizer)
        self._graves, self._turn, self._periods = Path(graves), turn, periods
        if periods:
            self.configure_optimizers = self._scheduled

    def _scheduled(self) -> Any:
        """A tenth of the rate after each of `periods` batches of all workers."""
        return with_periods(super().configure_optimizers(), self._periods, "step")

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        grave = self._graves / str(dist.get_rank())
        if batch_idx < self._turn or grave.exists():
            return
        if any(self._graves.parent.rglob("complete.json")):
            grave.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class AskingClassifier(ActingClassifier):
    """Waits in one step until a checkpoint has been asked for by the file `asked`, and a bit more
    than the time between two looks at it.
    """

    def __init__(self, network: Any, optimizer: Any, came: str, asked: str, turn: int) -> None:
        super().__init__(network, optimizer)
        self._came, self._asked, self._turn = Path(came), asked, turn

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == self._turn and not self._came.exists():
            self._came.touch()
            while not list(Path("runs").glob(self._asked)):
                time.sleep(0.01)
            time.sleep(0.3)
