"""A classifier whose worker falls silent in the middle of a step."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch.distributed as dist

from tests.classifiers import ActingClassifier


class SilentClassifier(ActingClassifier):
    """In its third step worker `silent` is stopped, or hangs. `how`: stop or hang."""

    def __init__(self, network: Any, optimizer: Any, how: str, silent: int, folder: str) -> None:
        super().__init__(network, optimizer)
        self._how, self._silent = how, silent
        self._sign = Path(folder) / "silent"

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if dist.get_rank() != self._silent and batch_idx == 2:
            while not self._sign.exists():  # else a slow machine leaves the other no step
                time.sleep(0.01)
        elif batch_idx == 2:
            self._sign.touch()
            if self._how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(600)
