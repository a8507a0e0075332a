"""Workers that are several processes, each with a part of the network: what they train is equal."""

import csv
import json
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from paceline.clock.split.network_plan import plan_network
from paceline.errors import SettingError
from paceline.exchange.collectives import collective
from paceline.record.observed import Observed
from paceline.run.run_point import run_point
from tests.clock.references import averaged, elastic, gossiped, plain, replayed
from tests.tiny import TINY, batches_of, point_of, run_tiny, run_together, tiny_point


def small_point(network, scheme, workers, shards, split="auto", **settings):
    """Settings of a point with 16 images in a step of all workers, 10 such steps; images of 8x8 in
    four classes. ResNet-18 learns slowly, or rounding grows too much in 10 steps: its last
    BatchNorms have one value of each image.
    """
    own = {
        "SmallAlexNet": ("small_alexnet", {"dropout": 0.0}),
        "SmallNiN": ("small_nin", {"dropout": 0.0}),
        "SmallCNN": ("small_cnn", {"width": 8, "normalization": "batch"}),
        "torchvision_network": ("network", {"name": "resnet18", "normalization": "batch"}),
    }
    module, options = own[network]
    target = {"_target_": f"paceline.model.{module}.{network}", **options}
    chosen = {
        "data": {**TINY["data"], "num_classes": 4, "image_shape": [1, 8, 8]},
        "training__samples": 160,
        "measurement__evaluations": 2,
        "model__network": {**target, "image_shape": [1, 8, 8], "num_classes": 4},
        "model__optimizer__lr": 0.1 if options.get("name") is None else 0.002,
        "model__shards": shards,
        "model__split": split,
    }
    return tiny_point(scheme, workers, 16 // workers, **{**chosen, **settings})


def num_steps(config):
    """Return the number of steps of each worker."""
    return config["training"]["samples"] // (config["workers"] * config["batch_size"])


def plain_state(config, workers=1):
    """Weights and statistics after a bare loop of SGD, in this process.

    Each gradient is the mean of those of `workers` replicas, which share the weights, and have
    statistics of their own.
    """
    torch.manual_seed(config["seed"])
    module = point_of(config).model.build().double()
    network, sgd = module.network, module.configure_optimizers()
    shared = {id(weight): weight for weight in network.parameters()}
    replicas = [network, *(deepcopy(network, dict(shared)) for _ in range(workers - 1))]
    steps = num_steps(config)
    size = config["training"]["samples"] // (steps * workers)
    drawn = {**config, "workers": workers, "batch_size": size}
    shares = [batches_of(drawn, worker) for worker in range(workers)]
    for turn in range(steps):
        losses = [
            nn.functional.cross_entropy(replica(images), labels)
            for replica, (images, labels) in zip(
                replicas, (share[turn] for share in shares), strict=True
            )
        ]
        sgd.zero_grad()
        torch.stack(losses).mean().backward()
        sgd.step()
    states = [replica.state_dict() for replica in replicas]
    return {
        name: torch.stack([state[name] for state in states]).mean(0)
        if first.is_floating_point()
        else first
        for name, first in states[0].items()
    }


SYNC = "sync_allreduce"
EXACT = {"rtol": 1e-10, "atol": 1e-12}
ONCE = {"measurement__evaluations": 1}  # gathering ResNet-18 for one costs as much as 5 steps
OWN = {"_target_": "tests.run.own.OwnModule", "lr": 0.5, "shards": 2, "split": "auto"}
FIVE = {"model__shards": 5, "model__split": "fully_connected"}
ADAFACTOR = {"_target_": "torch.optim.Adafactor", "_partial_": True, "lr": 0.01}
ASYNCHRONOUS = small_point("SmallCNN", "async_parameter_server", 1, 2, "all")
OF_FOUR = {  # by network, number of workers, and processes of each
    "AlexNet's kind, 4 x 1": small_point("SmallAlexNet", SYNC, 4, 1),
    "AlexNet's kind, 2 x 2": small_point("SmallAlexNet", SYNC, 2, 2),
    "AlexNet's kind, 1 x 4": small_point("SmallAlexNet", SYNC, 1, 4, "all"),
    "NiN's kind, 4 x 1": small_point("SmallNiN", SYNC, 4, 1),
    "NiN's kind, 2 x 2": small_point("SmallNiN", SYNC, 2, 2, "all"),
    "NiN's kind, 1 x 4": small_point("SmallNiN", SYNC, 1, 4),
    "BatchNorm, 2 x 2": small_point("torchvision_network", SYNC, 2, 2, "all", **ONCE),
    "BatchNorm, 1 x 4": small_point("torchvision_network", SYNC, 1, 4, "all", **ONCE),
}


@pytest.fixture(scope="module")
def of_four(tmp_path_factory):
    """By name: what four processes report, and the weights after training."""
    found = run_together(list(OF_FOUR.values()), tmp_path_factory.mktemp("four"))
    return dict(zip(OF_FOUR, found, strict=True))


def on_virtual_clock(config, folder):
    cluster = tiny_point("sync_allreduce", 1, 4, "virtual")["cluster"]
    return run_tiny({**config, "cluster": cluster}, folder)[0].workers


def observed(config, ran):
    about = {"scheme": point_of(config).scheme, "batch_size": config["batch_size"]}
    return Observed(ran.processes, (), warmup_fraction=0.1, **about)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_FOUR)
def test_shards_and_workers_are_one_worker_with_the_whole_batch(name, of_four):
    """And are observed as such. BatchNorm's statistics are each worker's, over its whole batch."""
    config, (ran, weights) = OF_FOUR[name], of_four[name]
    workers, steps = config["workers"], num_steps(config)
    assert_close(weights, plain_state(config, workers if "BatchNorm" in name else 1), **EXACT)
    seen, evaluations = observed(config, ran), config["measurement"]["evaluations"]
    assert [worker.steps for worker in seen.workers] == [steps] * workers
    in_batches = sum(report.images_seen.sum() for report in seen.training)
    assert seen.samples == in_batches == config["training"]["samples"]
    assert [score.updates for score in seen.scores] == [steps // 2, steps][-evaluations:]
    assert seen.certificate.words == ("synchronous" if workers > 1 else "one worker")
    model, shards = config["model"], config["model"]["shards"]
    network = point_of(config).model.build().double().network
    sizes = {key: each.numel() for key, each in network.named_parameters()}
    assert seen.first.num_parameters == sum(sizes.values())
    if shards == 1:
        return
    plan = plan_network(network, model["split"], shards, config["batch_size"], [1, 8, 8])
    summed = sum(size for key, size in sizes.items() if key in plan.summed)
    others = sum(
        size // (shards if key in plan.slices else 1)
        for key, size in sizes.items()
        if key not in plan.summed
    )
    native = collective("native")
    for report in seen.workers:
        processes = range(report.worker * shards, (report.worker + 1) * shards)
        sent = [native.volumes(4, summed)[rank].sent for rank in processes]
        sent += [native.volumes(workers, others)[report.worker].sent] * shards
        assert report.bytes_sent == 8 * steps * sum(sent)
        assert report.activation_bytes_sent == steps * plan.step.activation_bytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AlexNet's kind, 2 x 2", "BatchNorm, 2 x 2", "NiN's kind, 1 x 4"])
def test_bytes_are_equal_on_both_clocks(name, of_four, tmp_path):
    ways = ("bytes_sent", "bytes_received", "activation_bytes_sent", "activation_bytes_received")
    real = observed(OF_FOUR[name], of_four[name][0]).workers
    both = (real, on_virtual_clock(OF_FOUR[name], tmp_path))
    ours, theirs = ([[getattr(each, way) for way in ways] for each in some] for some in both)
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "settings", "expected"),
    [
        ("sync_parameter_server", {"scheme__servers": 2}, plain),
        ("async_parameter_server", {"scheme__servers": 2}, replayed),
        ("mixed", {"scheme__group_size": 2}, plain),
        ("local_sgd", {"scheme__period": 3}, averaged),
        ("sync_gossip", {"scheme__graph": "ring"}, plain),
        ("elastic_averaging", {"scheme__period": 3}, elastic),
        ("gossip", {"scheme__graph": "complete"}, gossiped),
    ],
)
def test_every_scheme_keeps_its_law_with_split_workers(scheme, settings, expected, tmp_path):
    """Two workers of two processes; the first linear layer is cut along its inputs."""
    config = tiny_point(scheme, 2, 4, model__shards=2, **settings)
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, expected(config, seen), rtol=1e-12, atol=1e-14)
    assert all(worker.activation_bytes_sent > 0 for worker in seen.workers)


def test_one_asynchronous_worker_of_two_processes_is_plain_sgd(tmp_path):
    """BatchNorm's statistics come whole to the server; bytes are those of the first process."""
    config = ASYNCHRONOUS
    seen, weights = run_tiny(config, tmp_path)
    assert_close(weights, plain_state(config), **EXACT)
    (worker,) = seen.workers
    network = point_of(config).model.build().network
    plan = plan_network(network, "all", 2, 16, [1, 8, 8])
    state = {name: each for name, each in network.state_dict().items() if each.is_floating_point()}
    parts = {name: each.numel() // (1 + (name in plan.slices)) for name, each in state.items()}
    held = dict(network.named_parameters())
    pushed = sum(each.numel() for each in state.values())
    gathered = sum(parts[name] for name in parts if name in {*plan.slices, *plan.summed})
    handed_out = 1 + sum(parts[name] for name in held)
    steps = 10
    assert worker.bytes_sent == 8 * (steps * pushed + (steps + 1) * handed_out)
    weights = sum(each.numel() for each in held.values())
    assert worker.bytes_received == 8 * ((steps + 1) * weights + steps * gathered)
    assert not plan.summed
    (modelled,) = on_virtual_clock(config, tmp_path)  # of both processes
    assert modelled.activation_bytes_sent == 2 * worker.activation_bytes_sent > 0
    assert modelled.bytes_sent == worker.bytes_sent + 8 * steps * gathered
    first = 8 * weights  # that the server sends before the clock starts
    others = 8 * (steps + 1) * handed_out
    assert modelled.bytes_received == worker.bytes_received - first + others


def test_a_record_of_split_workers(tmp_path, monkeypatch):
    """Through the whole pipeline, as paceline train goes."""
    monkeypatch.chdir(tmp_path)
    config = small_point("SmallNiN", "local_sgd", 2, 2, study="split", model__optimizer__lr=0.02)
    outcome = run_point(point_of(config))
    result = json.loads((outcome.folder / "result.json").read_text())
    assert (result["status"], result["kind"]) == ("finished", "measured")
    assert (result["workers"], result["servers"], result["samples"]) == (2, 0, 160)
    assert result["certificate"] == "all ended equal"
    with (outcome.folder / "phases.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["worker"], row["steps"], row["samples"]) for row in rows] == [
        (str(worker), "10", "80") for worker in range(2)
    ]
    for name in ("bytes_sent", "activation_bytes_sent"):
        assert sum(int(row[name]) for row in rows) == result[name] > 0
    assert not list(outcome.folder.glob("log/*"))


def test_what_split_workers_cannot_have_is_refused_in_a_line():
    for name, value in {
        "model__shards": 0,
        "model__split": "some",
        "scheme__collective": "ring",
        "scheme__compression": "fp16",
        "training__gradient_clip_val": 1.0,
        "training__checkpoint_seconds": 60,
        "training__precision": "bf16-true",
    }.items():
        config = tiny_point(SYNC, 2, 4, **{"model__shards": 2, name: value})
        assert_one_line(name.replace("__", "."), str(value), point_of, config)


@pytest.mark.parametrize(
    ("setting", "settings", "names"),
    [
        ("model.shards", {**FIVE, "batch_size": 15}, "classifier.2"),
        ("batch_size", {"batch_size": 5}, "5"),
        ("model.shards", {"model": OWN}, "OwnModule"),
        ("model", {"model__optimizer": ADAFACTOR}, "Adafactor"),
    ],
)
def test_what_only_the_processes_know_is_refused_without_a_record(
    setting, settings, names, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    config = small_point("SmallAlexNet", SYNC, 1, 2)
    for name, value in settings.items():
        *parents, leaf = name.split("__")
        (config[parents[0]] if parents else config)[leaf] = value
    assert_one_line(setting, names, run_point, point_of(config))
    assert not list(tmp_path.glob("runs/*/*/result.json"))


def assert_one_line(setting, names, call, argument):
    with pytest.raises(SettingError) as error:
        call(argument)
    assert error.value.setting == setting
    assert names in str(error.value)
    assert "\n" not in str(error.value)
