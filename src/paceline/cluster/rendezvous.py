"""Store by which the processes of a run find each other.

It is in none of them, so that each may end at any time. On one machine it is a file that only its
user may open. Over a network it is torch's TCPStore, which, as gloo, knows its peers by nothing:
whoever reaches its port can stop the run.
"""

import contextlib
import datetime
import socket
import tempfile
import uuid
from collections.abc import Generator
from pathlib import Path

from paceline.errors import SettingError

LOOPBACK_ADDRESS = "127.0.0.1"


@contextlib.contextmanager
def rendezvous_by_file(processes: int, address: str) -> Generator[dict[str, str]]:
    """Yield the environment by which processes on this machine find each other.

    `processes`: their number. `address`: of this machine, by which they all reach it.
    """
    from paceline.exchange.process_group import STORE

    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:  # of mode 0700
        yield {**_environment(processes, address, 0), STORE: str(Path(folder) / "store")}


@contextlib.contextmanager
def rendezvous(processes: int, address: str) -> Generator[dict[str, str]]:
    """Yield the environment by which processes connect to a store in this process.

    `processes`: their number. `address`: of this machine, by which they all reach it.

    The store takes over a socket that already listens on a port chosen by the system, so that no
    other program can take the port first.
    """
    import torch.distributed as dist

    try:
        listening = socket.create_server((address, 0))
    except OSError as error:
        message = f"nobody can listen on {address}: {error.strerror}"
        raise SettingError("cluster", message) from error
    port = listening.getsockname()[1]
    store = dist.TCPStore(  # type: ignore[reportPrivateImportUsage]
        address,
        port,
        is_master=True,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=60),
        master_listen_fd=listening.detach(),
    )
    yield _environment(processes, address, port)
    del store


def _environment(processes: int, address: str, port: int) -> dict[str, str]:
    """Return torchrun's variables, by which Lightning recognises that it need start no process."""
    from paceline.exchange.process_group import SECRET, make_secret

    return {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "GROUP_RANK": "0",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": uuid.uuid4().hex,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        SECRET: make_secret(),
    }
