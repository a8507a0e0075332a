"""Makes Lightning train without its messages, files, profiler and signal handlers."""

import logging
import signal
import threading
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pytorch_lightning import Callback, Trainer
from pytorch_lightning.loggers.logger import DummyLogger
from pytorch_lightning.profilers import Profiler
from tqdm import tqdm


def silence() -> None:
    """Suppress Lightning's warnings and messages in this process; errors are still printed."""
    # torch.fx makes a progress bar, whose lock is shared by processes: if one of them is killed,
    # its semaphore leaks with a warning.
    tqdm.set_lock(threading.RLock())
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")


def quiet_trainer(
    kind: type[Trainer] = Trainer, *, callbacks: Sequence[Callback] = (), **options: Any
) -> Trainer:
    """Make a Trainer that only trains. `options`: further options of Lightning's Trainer."""
    return kind(
        callbacks=[IgnoredSignals(), *callbacks],
        profiler=NoProfiler(),
        logger=DummyLogger() if kind is not Trainer else False,  # takes everything, keeps nothing
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=0,
        **options,
    )


class IgnoredSignals(Callback):
    """Callback that keeps ignoring the signals that this process ignored before training.

    Lightning's own handler of SIGTERM broadcasts to all workers and makes the run fail.
    """

    def __init__(self) -> None:
        asked = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
        self._ignored = [each for each in asked if signal.getsignal(each) is signal.SIG_IGN]

    def on_train_start(self, trainer: Trainer, *_: Any) -> None:
        for each in self._ignored:
            signal.signal(each, signal.SIG_IGN)


class NoProfiler(Profiler):
    """Profiler that does nothing.

    Lightning's default makes some 40 generators per step: 2 % of a small network's step.
    """

    _nothing = nullcontext()

    def profile(self, action_name: str) -> AbstractContextManager:  # type: ignore[override]
        return self._nothing

    def start(self, action_name: str) -> None:
        pass

    def stop(self, action_name: str) -> None:
        pass
