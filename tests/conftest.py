import atexit
import functools
import gc
import importlib.metadata
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # as in a worker; more wait for each other on a busy machine

import pytest

from paceline.cluster import processes

gc.disable()  # while modules are imported and tests collected, as all of that stays
# Lightning and torch would look for plugins in all installed packages in each run
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)

REPOSITORY = Path(__file__).parent.parent
processes._PRELOADED.insert(0, "tests.unyielding")  # and so all that trains, once in a forkserver
# which finds it by this alone, where a test has gone to another folder before it starts
os.environ["PYTHONPATH"] = f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")


def pytest_collection_finish():
    """Imported modules and collected cases are no garbage, and are not looked at again."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # as libraries look for leaks when the interpreter ends


@pytest.fixture(scope="session", autouse=True)
def _done_once():
    """What depends only on the content of files: settings, and the library of charts."""
    from tests import compose_once

    with pytest.MonkeyPatch.context() as patched:
        compose_once.patch(patched)
        with suppress(ModuleNotFoundError):  # a machine with a GPU may draw no charts
            import vl_convert

            once = functools.cache(vl_convert.javascript_bundle)
            patched.setattr(vl_convert, "javascript_bundle", once)
        yield


@pytest.fixture(scope="session")
def made_store(tmp_path_factory):
    """The file of an MLflow store with the experiment `made`, to be copied."""
    from paceline.record.measurement import MLflow
    from paceline.record.mlflow import RecordLog

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    with RecordLog(path.parent, MLflow(f"sqlite:///{path}", "made")):
        pass  # 1.5 s for MLflow's migrations
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A repository of its own: the settings and studies of this one."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("conf", "experiments"):
        shutil.copytree(REPOSITORY / name, root / name)
    return root


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
