"""Modules of `lightning` are those of pytorch_lightning in Paceline's processes."""

import os
import subprocess
import sys

from tests.run.own import OWN_TRAINING
from tests.tiny import REPOSITORY, run_tiny, tiny_point

BOTH = """
import pytorch_lightning, lightning_fabric
from paceline.model.one_lightning import use_one_lightning
use_one_lightning()
use_one_lightning()
before = pytorch_lightning.callbacks.__spec__
from tests.model import their_lightning as theirs
names = (pytorch_lightning.Trainer,) * 3 + (lightning_fabric.Fabric,)
names += (pytorch_lightning.Callback, pytorch_lightning.callbacks.ModelCheckpoint)
assert theirs.NAMES == names
assert issubclass(theirs.Theirs, pytorch_lightning.LightningModule)
assert pytorch_lightning.callbacks.__spec__ is before
assert pytorch_lightning.__spec__.name == "pytorch_lightning"
import lightning
assert not hasattr(lightning, "nothing")
try:
    import lightning.nothing
except ModuleNotFoundError as error:
    print(error)
"""


def test_both_names_are_one_package():
    command = [sys.executable, "-c", BOTH]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No module named 'lightning.nothing'\n"), done


def test_a_module_of_lightning_trains(tmp_path):
    target = "tests.model.their_lightning.Theirs"
    model = {"_target_": target, "lr": 0.5, "shards": 1, "split": "auto"}
    config = tiny_point("async_parameter_server", 2, 4, model=model, **OWN_TRAINING)
    seen, _ = run_tiny(config, tmp_path)
    assert sum(worker.steps for worker in seen.workers) * 4 == 3 * 48
