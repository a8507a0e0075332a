"""Modules of `lightning` are those of pytorch_lightning in Paceline's processes."""

import pytest

from paceline.cluster.launcher import call_in_processes
from tests.run.own import OWN_TRAINING
from tests.tiny import run_tiny, tiny_point


def use_both_names():
    """In a process that has pytorch_lightning, and `lightning` not yet."""
    import sys

    assert "pytorch_lightning" in sys.modules
    assert "lightning" not in sys.modules
    import lightning_fabric
    import pytorch_lightning

    from paceline.model.one_lightning import use_one_lightning

    use_one_lightning()
    use_one_lightning()
    before = pytorch_lightning.callbacks.__spec__
    from tests.model import their_lightning as theirs

    names = (pytorch_lightning.Trainer,) * 3 + (lightning_fabric.Fabric,)
    names += (pytorch_lightning.Callback, pytorch_lightning.callbacks.ModelCheckpoint)
    assert names == theirs.NAMES
    assert issubclass(theirs.Theirs, pytorch_lightning.LightningModule)
    assert pytorch_lightning.callbacks.__spec__ is before
    assert pytorch_lightning.__spec__.name == "pytorch_lightning"
    import lightning

    assert not hasattr(lightning, "nothing")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'lightning\.nothing'$"):
        import lightning.nothing


def test_both_names_are_one_package():
    assert call_in_processes(use_both_names) == [None]


def test_a_module_of_lightning_trains(tmp_path):
    target = "tests.model.their_lightning.Theirs"
    model = {"_target_": target, "lr": 0.5, "shards": 1, "split": "auto"}
    config = tiny_point("async_parameter_server", 2, 4, model=model, **OWN_TRAINING)
    seen, _ = run_tiny(config, tmp_path)
    assert sum(worker.steps for worker in seen.workers) * 4 == 3 * 48
