"""Law: a run that was interrupted and resumed is the one that was not, bit for bit."""

from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
import torch
from pytorch_lightning import Callback
from torch.testing import assert_close

from paceline.model.layerwise import LAMB, LARS
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

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == self._step:
            trainer.save_checkpoint(self._path)
            if self._killed:
                raise Killed


def check(scheme, tmp_path, name, **options):
    """Hold a run against one that was killed after one drawn step, and again after another."""
    workers = workers_for(scheme(), 5)

    def run(**more):
        return train(
            scheme(),
            workers,
            NUM_STEPS,
            batch_norm=True,
            dropout=0.2,
            snapshot_samples=[40, 100],
            profile=NODES,
            **options,
            **more,
        )

    drawn = np.random.default_rng(list(name.encode())).choice(NUM_STEPS - 12, 2, replace=False)
    first, second = sorted(drawn + 1)
    paths = [tmp_path / "first.ckpt", tmp_path / "second.ckpt"]
    whole = run(callbacks=[WritesAt(first, paths[0])])
    with pytest.raises(Killed):
        run(ckpt_path=paths[0], callbacks=[WritesAt(second, paths[1], killed=True)])
    assert_same(whole, run(ckpt_path=paths[1]))


def assert_same(whole, resumed):
    exactly = {"rtol": 0, "atol": 0}
    assert_close(*(weights_of(module) for _, module in (whole, resumed)), **exactly)
    clocks = [strategy.clock for strategy, _ in (whole, resumed)]
    kept = [
        [(each.samples, each.updates, each.seconds) for each in clock.holder.snapshots]
        for clock in clocks
    ]
    assert kept[0] == kept[1] != []
    vectors = [
        [(each.weights, each.statistics) for each in clock.holder.snapshots] for clock in clocks
    ]
    assert_close(*vectors, **exactly)
    np.testing.assert_equal(*(asdict(clock.report()) for clock in clocks))


@pytest.mark.parametrize("scheme", STRUCTURES.values(), ids=STRUCTURES)
def test_a_resumed_run_is_the_uninterrupted_one(scheme, tmp_path, request):
    check(scheme, tmp_path, request.node.name)


@pytest.mark.parametrize("scheme", FIRST_OF_EACH.values(), ids=FIRST_OF_EACH)
def test_a_resumed_run_of_copied_buffers_is_the_uninterrupted_one(scheme, tmp_path, request):
    with copied_vectors():
        check(scheme, tmp_path, request.node.name, sample_decay=0.99)


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [("async_parameter_server", torch.optim.AdamW), ("local_sgd", LAMB), ("diloco", LARS)],
)
def test_a_resumed_run_has_the_state_of_any_optimizer(scheme, kind, tmp_path, request):
    check(SCHEMES[scheme], tmp_path, request.node.name, optimizer=partial(kind, lr=0.1))


def test_another_runs_state_is_refused(tmp_path):
    scheme = SCHEMES["async_parameter_server"]
    path = tmp_path / "written.ckpt"
    train(scheme(), 3, 30, callbacks=[WritesAt(20, path)])
    for other in ({"profile": NODES}, {"batch_norm": True}):
        with pytest.raises((ValueError, RuntimeError)):
            train(scheme(), 3, 30, ckpt_path=path, **other)


def test_a_state_holds_no_more_than_its_run_needs(tmp_path):
    """Neither images nor what a Trainer holds: the vectors of workers and servers alone."""
    path = tmp_path / "written.ckpt"
    strategy, _ = train(SCHEMES["sync_allreduce"](), 16, 64, callbacks=[WritesAt(40, path)])
    (state,) = torch.load(path)["optimizer_states"]
    sizes = sorted(len(vector) for vector in state["clock"]["content"])
    options = [4] * 16  # of each worker's optimizer
    assert sizes == options + [103] * (strategy.clock.pool.made + 1)  # with the momentum


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
