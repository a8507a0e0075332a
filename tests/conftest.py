import shutil
import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of its own, of 64 KiB; needs the right to mount one."""
    folder = tmp_path / "small disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no right to mount a small disk")
    yield folder
    subprocess.run(["umount", folder], check=True)
