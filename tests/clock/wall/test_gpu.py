"""Real workers on a GPU: the laws hold there too, wherever the servers have their weights."""

import itertools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.errors import SettingError
from tests.clock.references import replayed
from tests.clock.test_laws import LAWS, SCHEDULED
from tests.clock.wall.test_deaths import assert_budget_is_used_up, dying
from tests.run.test_resumed_laws import law_of, resume
from tests.tiny import run_tiny, tiny_point

NUM_GPUS = torch.cuda.device_count()
ON_ONE = [pytest.mark.gpu, pytest.mark.skipif(NUM_GPUS < 1, reason="needs a GPU")]
ON_SEVERAL = [pytest.mark.gpus, pytest.mark.skipif(NUM_GPUS < 2, reason="needs several GPUs")]
ADAM = {"model__optimizer": {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 0.01}}
# Numbers of laws in LAWS that together use every link.
PICKED = {
    "async_parameter_server": [0, 1, 2, 5, 7],
    "sync_parameter_server": [0, 2, 3],
    "stale_synchronous": [2],
    "mixed": [2],
    "sync_then_async": [3],
    "elastic_averaging": [0],
    "sync_allreduce": [1, 3],
    "independent": [1],
    "local_sgd": [2],
    "post_local_sgd": [2],
    "gossip": [1],
}


def on_one(test):
    return ON_ONE[0](ON_ONE[1](test))


def on_one_gpu(workers, server_device="auto", **settings):
    return {
        "cluster__accelerator": "gpu",
        "cluster__workers_per_accelerator": workers,
        "cluster__server_device": server_device,
        **settings,
    }


def cases():
    """Each law with workers on one GPU, and servers there or not; a law with a GPU for each worker,
    by NCCL among workers, and by CUDA IPC between the GPUs of workers and servers.
    """
    for scheme, numbers in PICKED.items():
        laws = [LAWS[scheme][number] for number in numbers]
        devices = (
            ("cuda", "cpu") if tiny_point(scheme, 2, 4)["scheme"].get("servers") else ("auto",)
        )
        for law, device in itertools.product(laws, devices):
            place = on_one_gpu(law.workers, device)
            yield pytest.param(scheme, law, place, id=f"{scheme}-{law.name}-{device}", marks=ON_ONE)
        law = next((each for each in LAWS[scheme] if each.workers == 2), LAWS[scheme][0])
        place = {"cluster__accelerator": "gpu"}
        yield pytest.param(scheme, law, place, id=f"{scheme}-gpus", marks=ON_SEVERAL)


@pytest.mark.parametrize(("scheme", "law", "place"), list(cases()))
def test_law_on_gpus(scheme, law, place, tmp_path):
    settings = {**SCHEDULED, **law.settings, **place}
    config = tiny_point(scheme, law.workers, 8 if law.workers < 3 else 4, **settings)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, law.expected(config, seen), rtol=1e-10, atol=1e-12)


@on_one
@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize(
    ("scheme", "workers", "settings"),
    [
        ("sync_parameter_server", 2, {}),
        ("sync_parameter_server", 2, ADAM),
        ("async_parameter_server", 1, {"training__ema_decay": 0.9}),
        ("elastic_averaging", 1, {}),
    ],
)
def test_snapshots_have_the_scores_of_those_on_cpus(scheme, workers, settings, device, tmp_path):
    """So BatchNorm's statistics, weights and their moving average have arrived."""
    losses = []
    for name, where in (("gpu", on_one_gpu(workers, device)), ("cpu", {})):
        (folder := tmp_path / name).mkdir()
        config = tiny_point(scheme, workers, 8, **settings, **where)
        config["model"]["network"]["batch_norm"] = True
        seen, weights = run_tiny(config, folder)
        losses.append([score.loss for each in seen.training for score in each.scores])
        assert all(torch.isfinite(value).all() for value in weights.values())
    assert_close(*losses, rtol=1e-9, atol=1e-12)


@on_one
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_worker_that_dies_is_done_without(device, tmp_path):
    """Its memory on the GPU goes with it, though the server still knows it."""
    config = dying(tmp_path, "before")
    for name, value in on_one_gpu(2, device).items():
        config["cluster"][name.removeprefix("cluster__")] = value
    seen, weights = run_tiny(config, tmp_path)
    assert_budget_is_used_up(seen)
    assert_close(weights, replayed(config, seen), rtol=1e-10, atol=1e-12)


@on_one
@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("async_parameter_server", {"scheme__servers": 2}),
        ("sync_parameter_server", {"scheme__group_size": 2, "scheme__servers": 2}),
        ("elastic_averaging", {"scheme__period": 3}),
    ],
)
def test_the_law_holds_across_a_resume(scheme, settings, tmp_path):
    workers = law_of(scheme, settings).workers
    resume(scheme, settings, tmp_path, 1e-10, **on_one_gpu(workers, "cuda"))


@on_one
def test_workers_that_do_not_fit_are_refused_before_they_train(tmp_path):
    config = tiny_point("independent", 2, 8, **on_one_gpu(2), training__precision="32-true")
    config["model"]["network"] = {"_target_": "tests.clock.wall.test_gpu.TooLarge"}
    with pytest.raises(
        SettingError, match=r"^cluster\.workers_per_accelerator: the memory of a GPU"
    ):
        run_tiny(config, tmp_path)
    assert not (tmp_path / "progress.csv").exists()


class TooLarge(nn.Sequential):
    """It needs more memory than any GPU has, and on a CPU none."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(16, 3))

    def forward(self, images):
        if images.is_cuda:
            torch.empty(2**42, dtype=torch.uint8, device=images.device)
        return super().forward(images)
