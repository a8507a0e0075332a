"""Downloads a data set through torchvision, completely or not at all.

A failure is reported in one line.
"""

import contextlib
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from paceline.errors import SettingError

_SILENCE_SECONDS = 10  # without a byte from the server; torchvision would wait for ever


def download(fetch: Callable[[Path], object], folder: str, root: Path, looked_for: str) -> None:
    """Call `fetch(temporary)`, which must create `temporary/folder`, and move that into `root`.

    Raises SettingError("data.root") if `fetch` fails; its message begins with `looked_for`, which
    says what files are missing, and ends with the cause.
    """
    timeout = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SILENCE_SECONDS)
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".download-", dir=root) as temporary,
            contextlib.redirect_stdout(sys.stderr),
        ):
            print(f"downloading {folder} to {root}", file=sys.stderr, flush=True)
            fetch(Path(temporary))
            (Path(temporary) / folder).rename(root / folder)
    except (OSError, RuntimeError) as error:
        raise SettingError(
            "data.root", f"{looked_for}, and the download failed: {error}"
        ) from error
    finally:
        socket.setdefaulttimeout(timeout)
