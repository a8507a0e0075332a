"""Training says nothing and leaves nothing but what the run itself writes."""

import logging
import os
import signal
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning import Callback
from pytorch_lightning.utilities.exceptions import SIGTERMException

from paceline.model.classifier import Classifier
from paceline.run.quiet import quiet_trainer, silence
from paceline.run.training_process import _threads_of_server
from tests.tiny import batches_of, run_together, tiny_network, tiny_point


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


@pytest.mark.parametrize("ignored", [True, False])
def test_a_signal_that_is_ignored_before_is_ignored_in_training(ignored):
    """As one of a scheduler to all processes of a job; else Lightning ends the run."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN if ignored else signal.SIG_DFL)

    class Signalled(Callback):
        def on_train_batch_start(self, *_):
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        options = {"accelerator": "cpu", "precision": "64-true", "max_epochs": 1}
        trainer = quiet_trainer(callbacks=[Signalled()], **options)
        module = Classifier(tiny_network().double(), partial(torch.optim.SGD, lr=0.1))
        batches = batches_of(tiny_point("sync_allreduce", 1, 4), 0, num_batches=3)
        with nullcontext() if ignored else pytest.raises(SIGTERMException):
            trainer.fit(module, batches)
        assert trainer.global_step == (3 if ignored else 1)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_paced_workers_alone_give_way_to_servers_on_their_machine(tmp_path):
    paced = {"cluster__step_seconds": 0.005}
    configs = [
        tiny_point("async_parameter_server", 2, 4, **paced),
        tiny_point("async_parameter_server", 2, 4),
        tiny_point("sync_allreduce", 2, 4, **paced),
    ]
    run_together(configs, tmp_path)
    gave_way = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/gave_way_*"))
    assert gave_way == ["0/gave_way_0", "0/gave_way_1"]


@pytest.mark.parametrize(
    ("device", "here", "asked", "threads"),
    [("cpu", 2, 1, 1), ("cuda", 2, 1, 8), ("cuda", 5, 1, 3), ("cuda", 40, 1, 1), ("cuda", 5, 4, 4)],
)
def test_a_server_beside_workers_on_gpus_uses_its_share_of_16_cores(
    device, here, asked, threads, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(16))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(here))
    cluster = SimpleNamespace(threads_per_worker=asked)
    assert _threads_of_server(SimpleNamespace(device=device, cluster=cluster)) == threads
