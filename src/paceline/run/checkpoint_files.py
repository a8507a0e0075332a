"""Files of one process in the checkpoints of a point."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from paceline.exchange.process_group import draw_number
from paceline.record.checkpoint import complete, folder_of, latest


class CheckpointFiles:
    """Files of the process with this name, one of `num_processes`, which all write one.

    `record`: folder of the partial record. `before`: the file from which the process goes on.
    `written`, `resumes`: numbers over the whole run.
    """

    def __init__(self, record: Path, name: str, num_processes: int) -> None:
        self._record, self._name, self._num_processes = record, name, num_processes
        before = latest(record)
        self.before = folder_of(record, before.number) / f"{name}.ckpt" if before else None
        self.written = before.number if before else 0
        self.resumes = before.resumes + 1 if before else 0

    def write(self, save: Callable[[Path], object], samples: int) -> None:
        """Write a file by `save`; the last of the processes declares the checkpoint complete.

        `samples`: of all workers, as far as this process knows.
        """
        self.written += 1
        folder = folder_of(self._record, self.written)
        folder.mkdir(parents=True, exist_ok=True)
        save(folder / f"{self._name}.ckpt")
        if draw_number(f"files of checkpoint {self.written}") + 1 == self._num_processes:
            complete(self._record, self.written, samples, self.resumes)


class ServerCheckpoints(CheckpointFiles):
    """Files of a server."""

    def load(self) -> Mapping[str, Any] | None:
        """Return the state from which the server goes on; its rule's part is an object."""
        return None if self.before is None else torch.load(self.before, weights_only=False)

    def keep(self, state: Mapping[str, Any], samples: int) -> None:
        self.write(lambda path: torch.save(state, path), samples)
