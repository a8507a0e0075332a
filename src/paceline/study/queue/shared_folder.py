"""Check that nodes see the project, before points are submitted that could only fail."""

import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import SettingError

_IMMEDIATE_SECONDS = 5  # a node that is not free by then is not asked; jobs tell later
_PATIENCE = 30  # s with srun
_SEEN, _UNSEEN = "seen", "unseen"


def check_shared(folder: Path, needs: Mapping[str, Any]) -> None:
    """Raise SettingError if a node that is free does not see `folder`, where records are made.

    `needs`: of a job, by submitit's names.
    """
    token = folder.resolve() / f".seen-{secrets.token_hex(4)}"
    where = [f"--{name}={needs[name]}" for name in ("partition", "account") if name in needs]
    step = ["--nodes=1", "--ntasks=1", "--time=1", f"--immediate={_IMMEDIATE_SECONDS}"]
    look = f"test -e '{token}' && echo {_SEEN} $SLURMD_NODENAME || echo {_UNSEEN} $SLURMD_NODENAME"
    token.touch()
    try:
        done = subprocess.run(
            ["srun", "--quiet", "--chdir=/", *where, *step, "sh", "-c", look],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return
    finally:
        token.unlink()
    seen, _, node = done.stdout.strip().partition(" ")
    if seen == _UNSEEN:
        message = f"node {node} does not see {folder.resolve()}: nodes must share the project"
        raise SettingError("cluster", message)
