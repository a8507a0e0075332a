"""A model whose training stands still until a test lets it go on."""

import time
from pathlib import Path
from typing import Any

from tests.classifiers import ActingClassifier

GATE = Path("gate")  # in the project; open once it is there
AT_GATE = "at the gate"


class GatedClassifier(ActingClassifier):
    """Stands at the second batch, and says so, until the gate is open.

    `patience`: seconds after which it goes on to the next batch, where it stands again.
    """

    def __init__(self, network: Any, optimizer: Any, patience: float = 1000) -> None:
        super().__init__(network, optimizer)
        self._patience = patience

    def before_batch(self, batch: Any, batch_idx: int) -> None:
        if batch_idx == 1:
            print(AT_GATE, flush=True)
        until = time.monotonic() + self._patience
        while batch_idx > 0 and not GATE.exists() and time.monotonic() < until:
            time.sleep(0.02)
