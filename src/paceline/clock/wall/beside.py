"""Thread of a worker for what its rule does beside the computing of a step."""

import threading
from queue import SimpleQueue

from paceline.clock.links import Process
from paceline.clock.rule_driver import complete


class Beside:
    """Carries out one process at a time in a thread, which ends with the program at the latest."""

    def __init__(self) -> None:
        self._processes: SimpleQueue[Process[None]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._error: Exception | None = None

    def is_idle(self) -> bool:
        """Return True if no process is under way. Raises the error of the last one."""
        if self._error is not None:
            raise self._error
        return self._idle.is_set()

    def begin(self, process: Process[None]) -> None:
        """Carry out `process`; none may be under way."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._carry_out_all, daemon=True)
            self._thread.start()
        self._idle.clear()
        self._processes.put(process)

    def wait(self) -> None:
        """Wait for the process under way. Raises its error."""
        self._idle.wait()
        if self._error is not None:
            raise self._error

    def _carry_out_all(self) -> None:
        while True:
            process = self._processes.get()
            try:
                complete(process)
            except Exception as error:
                self._error = error
            self._idle.set()
