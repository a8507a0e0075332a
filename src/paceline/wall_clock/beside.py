"""Thread of a worker for what its rule does beside the computing of a step."""

import threading

from paceline.engine.links import Process
from paceline.engine.rule_driver import complete


class Beside:
    """Carries out one process at a time in a thread, which ends with the program at the latest."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def is_idle(self) -> bool:
        """Return True if no process is under way. Raises the error of the last one."""
        if self._error is not None:
            raise self._error
        return self._thread is None or not self._thread.is_alive()

    def begin(self, process: Process[None]) -> None:
        """Carry out `process`; none may be under way."""
        self._thread = threading.Thread(target=self._carry_out, args=(process,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the process under way. Raises its error."""
        if self._thread is not None:
            self._thread.join()
        assert self.is_idle()

    def _carry_out(self, process: Process[None]) -> None:
        try:
            complete(process)
        except Exception as error:
            self._error = error
