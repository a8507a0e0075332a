"""Store by which the processes of a run find each other."""

import contextlib
import datetime
import socket
import uuid
from collections.abc import Generator

from paceline.errors import SettingError

LOOPBACK_ADDRESS = "127.0.0.1"  # the default, as neither the store nor gloo authenticates a peer


@contextlib.contextmanager
def rendezvous(processes: int, address: str) -> Generator[dict[str, str]]:
    """Yield the environment by which processes connect to a store in this process.

    `processes`: their number. `address`: of this machine, by which they all reach it.

    The store is not in one of them, so that each may end at any time. It takes over a socket that
    already listens on a port chosen by the system, so that no other program can take the port
    first. The variables are torchrun's, by which Lightning recognises that it need not start
    processes.
    """
    import torch.distributed as dist

    from paceline.exchange.process_group import SECRET, make_secret

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
    yield {
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
    del store
