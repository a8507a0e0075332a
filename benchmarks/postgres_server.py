"""A tracking server of MLflow with PostgreSQL behind it, which can be stopped and started again."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from pathlib import Path

_PROGRAMS = Path("/usr/lib/postgresql")  # of Debian's package, by version
_USER = "postgres"  # whom that package makes: PostgreSQL refuses to run as root


class TrackingServer:
    """`mlflow server` on a free port of this machine. `store`: URI of its database."""

    def __init__(self, store: str, folder: Path) -> None:
        self.port = _free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._store, self._folder = store, folder
        self._process: subprocess.Popen | None = None

    def start(self, seconds: float = 300) -> None:
        """Start it, and wait until it answers. Raises TimeoutError."""
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", self._store]
        command += ["--artifacts-destination", str(self._folder / "artifacts")]
        with (self._folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + seconds
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"no tracking server: {_last_line(Path(log.name))}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Kill it with all its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.uri}/health", timeout=5).status == 200
        except OSError:
            return False


@contextlib.contextmanager
def postgres(folder: Path) -> Generator[str]:
    """Have a database of PostgreSQL in `folder`; yield its URI."""
    programs = sorted(_PROGRAMS.glob("*/bin"))
    if not programs:
        raise SystemExit("benchmarks: no PostgreSQL here: apt-get install postgresql")
    data, port = folder / "postgres", _free_port()
    data.mkdir()
    shutil.chown(data, _USER)
    folder.chmod(0o755)
    _run(programs[-1] / "initdb", "--no-sync", "--auth=trust", "--pgdata", str(data))
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories="
    control = (programs[-1] / "pg_ctl", "--pgdata", str(data), "--wait")
    _run(*control, "--log", str(data / "log"), "--options", options, "start")
    try:
        yield f"postgresql+psycopg2://{_USER}@127.0.0.1:{port}/{_USER}"
    finally:
        _run(*control, "--mode", "immediate", "stop")


def _run(program: Path, *arguments: str) -> None:
    user = _USER if os.geteuid() == 0 else None
    subprocess.run(
        [str(program), *arguments],
        user=user,
        cwd="/",
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _last_line(path: Path) -> str:
    return (path.read_text().splitlines() or [""])[-1]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]
