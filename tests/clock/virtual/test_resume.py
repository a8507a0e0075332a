"""Law: a run that was interrupted and resumed is the one that was not, bit for bit."""

import contextlib
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from paceline.model.layerwise import LARS
from paceline.timing.profile import ClusterProfile, Link
from tests.clock.virtual.trained import (
    SCHEMES,
    STRUCTURES,
    copied_vectors,
    first_by,
    train,
    weights_of,
    workers_for,
)

NUM_STEPS = 36
NODES = ClusterProfile(Link(0.05, 20_000), Link(0.02, 50_000), 2, 0.02, 100_000)


FIRST_OF_EACH = first_by(type)


class Killed(Exception):
    pass


class WritesAt(Callback):
    """Writes a checkpoint after this step of all steps of the run, which may be the last."""

    def __init__(self, step, path, killed=False):
        self._step, self._path, self._killed = step, path, killed
        self.shared = None  # weights of all, as they were then

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self._step:
            trainer.save_checkpoint(self._path)
            self.shared = trainer.strategy.execution.shared().weights[0]
            if self._killed:
                raise Killed


def assert_same(whole, resumed):
    exactly = {"rtol": 0, "atol": 0}
    assert_close(*(weights_of(module) for _, module in (whole, resumed)), **exactly)
    runs = [strategy.execution for strategy, _ in (whole, resumed)]
    kept = [[(each.samples, each.updates, each.seconds) for each in run.snapshots] for run in runs]
    assert kept[0] == kept[1] != []
    vectors = [[(each.weights, each.statistics) for each in run.snapshots] for run in runs]
    assert_close(*vectors, **exactly)
    np.testing.assert_equal(*(asdict(run.report()) for run in runs))


RUNS = {
    **{name: (scheme, {}) for name, scheme in STRUCTURES.items()},
    **{f"{name}, copied": (each, {"sample_decay": 0.99}) for name, each in FIRST_OF_EACH.items()},
    **{
        f"{name} by {kind.__name__}": (SCHEMES[name], {"optimizer": partial(kind, lr=0.1)})
        for name, kind in (
            ("async_parameter_server", torch.optim.AdamW),
            ("local_sgd", torch.optim.Adam),
            ("diloco", LARS),
        )
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_a_resumed_run_is_the_uninterrupted_one(name, tmp_path):
    """Against one that was killed after one drawn step, and again after another."""
    scheme, options = RUNS[name]
    workers = workers_for(scheme(), 5)
    settings = {"batch_norm": True, "dropout": 0.2, "snapshot_samples": [40, 100]}
    run = partial(train, workers=workers, num_steps=NUM_STEPS, profile=NODES, **settings, **options)
    drawn = np.random.default_rng(list(name.encode())).choice(NUM_STEPS - 12, 2, replace=False)
    first, second = sorted(drawn + 1)
    paths = [tmp_path / "first.ckpt", tmp_path / "second.ckpt"]
    with copied_vectors() if "copied" in name else contextlib.nullcontext():
        whole = run(scheme(), callbacks=[WritesAt(first, paths[0])])
        killed = [WritesAt(second, paths[1], killed=True)]
        with pytest.raises(Killed):
            run(scheme(), ckpt_path=paths[0], callbacks=killed)
        assert_same(whole, run(scheme(), ckpt_path=paths[1]))


def test_another_runs_state_is_refused(tmp_path):
    scheme = SCHEMES["async_parameter_server"]
    path = tmp_path / "written.ckpt"
    train(scheme(), 3, 30, callbacks=[WritesAt(20, path)])
    for other in ({"profile": NODES}, {"batch_norm": True}):
        with pytest.raises((ValueError, RuntimeError)):
            train(scheme(), 3, 30, ckpt_path=path, **other)
    _, module = train(scheme(), 3, 30, of_trainer={"max_steps": 5})
    module.trainer.save_checkpoint(path)  # all messages under way have been delivered
    with pytest.raises(ValueError, match="of a run that has ended"):
        train(scheme(), 3, 30, ckpt_path=path, of_trainer={"max_epochs": 2})


def test_a_state_holds_no_more_than_its_run_needs(tmp_path):
    """Weights and momentum, which all workers share, and the sum of half a mean."""
    path = tmp_path / "written.ckpt"
    train(SCHEMES["sync_allreduce"](), 16, 64, callbacks=[WritesAt(40, path)])
    (state,) = torch.load(path)["optimizer_states"]
    held = {each.data_ptr(): each for each in tree_leaves(state["clock"]) if torch.is_tensor(each)}
    assert [each.numel() for each in held.values() if each.numel()] == [103] * 3


@pytest.mark.parametrize("scheme", ["async_parameter_server", "local_sgd"])
def test_a_checkpoint_has_the_shared_weights(scheme, tmp_path):
    writes = WritesAt(7, tmp_path / "written.ckpt")
    train(SCHEMES[scheme](), 3, 12, callbacks=[writes])
    state = torch.load(tmp_path / "written.ckpt")["state_dict"]
    assert torch.equal(torch.cat([each.flatten() for each in state.values()]), writes.shared)
