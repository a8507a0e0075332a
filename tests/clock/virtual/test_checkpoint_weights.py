"""A checkpoint in the middle has the weights that all workers share."""

import pytest
import torch
from pytorch_lightning import Callback

from tests.clock.virtual.trained import SCHEMES, train


class Writes(Callback):
    def __init__(self, path):
        self._path = path

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 7:
            trainer.save_checkpoint(self._path)
            self.shared = trainer.strategy.clock.shared().weights[0]


@pytest.mark.parametrize("scheme", ["async_parameter_server", "local_sgd"])
def test_a_checkpoint_has_the_shared_weights(scheme, tmp_path):
    writes = Writes(tmp_path / "written.ckpt")
    train(SCHEMES[scheme](), 3, 12, callbacks=[writes])
    state = torch.load(tmp_path / "written.ckpt")["state_dict"]
    assert torch.equal(torch.cat([each.flatten() for each in state.values()]), writes.shared)
