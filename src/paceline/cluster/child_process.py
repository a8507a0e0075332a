"""A process that the forkserver has forked, held by a descriptor of its own.

What multiprocessing knows of it comes from the forkserver, which may be stopped or killed.
"""

import os
import signal
from contextlib import suppress
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from typing import Any

_CODE_SECONDS = 1.0  # for the forkserver to tell the exit code of a process that has ended


class ChildProcess:
    """A started process. `sentinel`: descriptor that is ready when it has ended."""

    def __init__(self, process: BaseProcess) -> None:
        self._process = process
        assert process.pid is not None
        self._descriptor: int | None = None
        self.sentinel: Any = process.sentinel
        with suppress(ProcessLookupError):  # it has ended already
            self.sentinel = self._descriptor = os.pidfd_open(process.pid)

    @property
    def exitcode(self) -> int | None:
        """Exit code, below 0 of a signal; None while it lives, or if nobody knows."""
        if self.is_alive():
            return None
        self._process.join(_CODE_SECONDS)
        code = self._process.exitcode
        return None if code == 255 else code  # as multiprocessing tells of a lost forkserver

    def is_alive(self) -> bool:
        return not self.wait(0)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has ended."""
        return bool(connection.wait([self.sentinel], seconds))

    def kill(self) -> None:
        if self._descriptor is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> bool:
        """Let go of it; return False if the forkserver does not tell its end."""
        self._process.join(_CODE_SECONDS)
        told = self._process.exitcode is not None
        if told:
            self._process.close()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        return told
