"""Training says nothing and leaves nothing but what the run itself writes."""

import logging
from functools import partial

import torch

from paceline.model.classifier import Classifier
from paceline.run.quiet import quiet_trainer, silence
from tests.tiny import batches_of, tiny_network, tiny_point


class Watched(Classifier):
    def validation_step(self, *_):
        raise AssertionError("snapshots are evaluated after training")


def test_it_trains_without_words_or_files(tmp_path, monkeypatch, capfd, caplog, recwarn):
    caplog.set_level(logging.INFO, "pytorch_lightning")  # and back, after the test
    monkeypatch.chdir(tmp_path)
    silence()
    batches = batches_of(tiny_point("sync_allreduce", 1, 4), 0, num_batches=3)
    module = Watched(tiny_network().double(), partial(torch.optim.SGD, lr=0.1))
    trainer = quiet_trainer(accelerator="cpu", precision="64-true", max_epochs=1)
    trainer.fit(module, batches, batches)
    assert trainer.global_step == 3
    assert capfd.readouterr() == ("", "")
    assert caplog.messages == []
    assert [str(w.message) for w in recwarn if "lightning" in w.filename] == []
    assert list(tmp_path.iterdir()) == []
