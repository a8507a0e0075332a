"""Placed data on four real processes, and the same on the virtual clock: order, weights, bytes.

What placed data cannot be is refused in one line.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from paceline.data.image_folder import ImageFolder
from paceline.data.shuffle import Shuffle
from paceline.errors import SettingError
from paceline.record.observed import Observed
from paceline.record.result import measured
from paceline.run.open_data import TrainingImages, open_data
from paceline.run.placed_data import reading_of
from tests.clock.references import plain
from tests.data.made_data import settings, write_image_folder
from tests.launching import launch
from tests.run.own import OwnData, Told, own_point
from tests.run.placed import NUM_FEW, SHAPE, numbered_images
from tests.run.placed import NUM_TRAIN as NUM_LARGE
from tests.run.test_data_module import READING, replace_store
from tests.tiny import CLOCKS, point_of, run_tiny, run_together, tiny_point

SYNC, WORKERS = "sync_allreduce", 4
PARTITIONED = {"placement": "partitioned"}
ROW = 16 + 8  # bytes of a tiny image and its label


def placed(scheme=SYNC, batch_size=4, module=False, clock="wall", **data):
    if module:
        config = own_point(scheme, clock) | {"workers": WORKERS}
    else:
        config = tiny_point(scheme, WORKERS, batch_size, **CLOCKS[clock])
    return config | {"data": config["data"] | data}


CASES = {
    "replicated": {},
    "every epoch": {**PARTITIONED, "shuffle_every": 1},
    "every two": {**PARTITIONED, "shuffle_every": 2},
    "never": PARTITIONED,
    "by class": {**PARTITIONED, "partition": "by_class", "shuffle_every": 1},
    "not whole rounds": {**PARTITIONED, "shuffle_every": 1, "batch_size": 5},
    "local": {**PARTITIONED, "shuffle_every": 1, "scheme": "local_sgd"},
    "in memory": {"store": "memory"},
    "module": {"module": True},
    "module, every epoch": {"module": True, **PARTITIONED, "shuffle_every": 1},
    "module, in memory": {"module": True, "store": "memory"},
    "module, by class": {"module": True, **PARTITIONED, "partition": "by_class"},
}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Of each case the reports of the four processes and the weights; and the large shuffles."""
    folder, root = tmp_path_factory.mktemp("placed"), tmp_path_factory.mktemp("large")
    for number in (NUM_FEW, NUM_LARGE):
        numbered_images(root, number).prepare()
    configs = [placed(**case) for case in CASES.values()]
    target = "tests.run.placed:everything"
    log = folder / "log"
    of_processes = launch(target, (configs, root, folder), workers=4, servers=0, log_folder=log)
    cases = {
        name: (
            observed_of(name, [reports[number] for reports, _ in of_processes]),
            torch.load(folder / str(number) / "weights.pt"),
        )
        for number, name in enumerate(CASES)
    }
    return cases, [large for _, large in of_processes]


def observed_of(name, reports):
    scheme = point_of(placed(**CASES[name])).scheme
    settings = {"batch_size": batch_size_of(name), "warmup_fraction": 0.0}
    return Observed(reports, scheme=scheme, **settings)


def batch_size_of(name):
    return placed(**CASES[name])["batch_size"]


def on_virtual_clock(name, folder):
    seen, weights = run_tiny(placed(clock="virtual", **CASES[name]), folder)
    return observed_of(name, seen.training), weights


def assert_same(first, second, **tolerance):
    assert first.keys() == second.keys()
    for name in first:
        assert_close(first[name], second[name], **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_both_clocks_end_with_the_same_weights_and_move_the_same_bytes(name, real, tmp_path):
    observed, weights = real[0][name]
    virtual, modelled = on_virtual_clock(name, tmp_path)
    single = CASES[name].get("module", False)
    assert_same(weights, modelled, rtol=1e-5 if single else 1e-12, atol=1e-6 if single else 1e-14)
    assert measured(observed)["shuffle_bytes"] == measured(virtual)["shuffle_bytes"]
    assert np.array_equal(*(sum(e.images_seen for e in o.training) for o in (observed, virtual)))


def test_a_set_shuffled_every_epoch_is_replicated_data_bit_for_bit(real, tmp_path):
    (_, replicated), (observed, weights) = real[0]["replicated"], real[0]["every epoch"]
    assert_same(weights, replicated, rtol=0, atol=0)
    assert_same(weights, plain(placed()), rtol=1e-12, atol=1e-14)
    (_, module), (_, partitioned) = real[0]["module"], real[0]["module, every epoch"]
    assert_same(module, partitioned, rtol=0, atol=0)
    virtual = [on_virtual_clock(name, tmp_path)[1] for name in ("replicated", "every epoch")]
    assert_same(*virtual, rtol=0, atol=0)
    order = observed.first.order
    expected = sum(
        Shuffle(order.shares(period), order.shares(period + 1), ROW).moved.sum()
        for period in range(2)
    )
    assert measured(observed)["shuffle_bytes"] == expected * ROW > 0


def test_where_samples_come_from_changes_nothing(real):
    _, replicated = real[0]["replicated"]
    assert_same(real[0]["in memory"][1], replicated, rtol=0, atol=0)
    assert_same(real[0]["module, in memory"][1], real[0]["module"][1], rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_records_count_the_images_that_were_drawn(name, real):
    """In three epochs of 48; a worker draws only what it holds."""
    observed, _ = real[0][name]
    seen = [report.images_seen for report in observed.training]
    numbers, order = measured(observed), observed.first.order
    drawn = batch_size_of(name) * sum(worker.steps for worker in observed.workers)
    assert sum(seen).sum() == numbers["samples"] == drawn
    assert numbers["distinct_samples"] == (sum(seen) > 0).sum()
    if "batch_size" not in CASES[name]:
        assert set(sum(seen).tolist()) == {3}
    if CASES[name].items() <= PARTITIONED.items() and CASES[name]:
        for worker, counts in enumerate(seen):
            share = set(order.share(worker, 0).tolist())
            assert set(np.flatnonzero(counts).tolist()) == share


def test_processes_hold_a_share_and_a_buffer_and_send_what_is_counted(real):
    """Besides, there is the order of all samples, and code that is needed for the first time."""
    drawn = Counter()
    for large in real[1]:
        most = large.share + 64 * NUM_LARGE + 2**21
        assert large.added < most < 0.6 * NUM_LARGE * np.prod(SHAPE)
        assert large.sent <= large.sent_by_kernel < 1.02 * large.sent
        assert large.begun == 2  # after each shuffle
        drawn.update(large.labels)
    total = sum(large.sent for large in real[1])
    expected = 2 * NUM_LARGE * 3 / 4 * (np.prod(SHAPE) + 8)
    assert total == pytest.approx(expected, rel=0.03)
    assert len(drawn) > 3 * 4 * WORKERS - 8  # batches of three periods, hardly any twice


STORES = (None, "memory", "decoded_each_time")


def test_a_batch_is_the_same_from_every_store(tmp_path):
    write_image_folder(tmp_path)
    folder = ImageFolder(**settings(tmp_path))
    readings = [replace_store(replace(READING, batch_size=3), store) for store in STORES]
    first, *others = [open_data(folder, reading).batch(0, 5) for reading in readings]
    for images, labels in others:
        assert images.equal(first[0])
        assert labels.equal(first[1])


@pytest.mark.parametrize("clock", CLOCKS)
def test_servers_do_not_take_part_in_a_shuffle(clock, tmp_path):
    """A synchronous server's workers meet by its answers; one that is asynchronous needs no meeting
    for a partition that stays.
    """
    meeting = placed("sync_parameter_server", clock=clock, **CASES["every epoch"])
    asynchronous = placed("async_parameter_server", clock=clock, **CASES["never"])
    (met, weights), (seen, _) = run_together([meeting, asynchronous], tmp_path)
    assert_same(weights, plain(placed()), rtol=1e-12, atol=1e-14)
    assert sum(each.moved.shuffle_bytes for each in met.training) > 0
    order = seen.training[0].order
    for report in seen.training if clock == "wall" else ():
        share = order.share(report.strategy.workers[0].worker, 0)
        assert set(np.flatnonzero(report.images_seen).tolist()) <= set(share.tolist())


def test_batches_gathered_from_a_placed_copy_are_those_drawn_one_by_one(monkeypatch):
    """A copy on a GPU is stood in for by one in this memory; elsewhere batches are drawn."""
    point = point_of(tiny_point("sync_allreduce", 3, 4))
    data, numbers = open_data(point.data.build(), reading_of(point)), [(0, 0), (2, 1), (1, 5)]
    assert data.together(numbers, torch.device("cpu")) is None

    def placed(self, device):
        return self._samples, self._normalise.to(device)

    monkeypatch.setattr(TrainingImages, "_place", placed)
    found = data.together(numbers, torch.device("cpu"))
    drawn = zip(*(data.batch(*each) for each in numbers), strict=True)
    for gathered, parts in zip(found, drawn, strict=True):
        assert torch.equal(gathered, torch.stack(parts))


def test_who_does_not_meet_is_refused_in_a_line():
    def shuffled(scheme, every, changed):
        config = placed(scheme, **PARTITIONED, shuffle_every=every)
        return point_of({**config, "scheme": {**config["scheme"], **changed}})

    message = r"^data\.shuffle_every: it needs a time at which all workers meet; "
    never = ("async_parameter_server", "gossip", "independent", "elastic_averaging")
    for scheme, changed in (
        *((scheme, {}) for scheme in (*never, "stale_synchronous")),
        ("sync_parameter_server", {"backup_workers": 1}),
    ):
        with pytest.raises(SettingError, match=message):
            shuffled(scheme, 1, changed)
        shuffled(scheme, None, changed)
    shuffled("sync_parameter_server", 1, {})
    shuffled("post_local_sgd", 1, {})
    shuffled("mixed", 1, {"group_size": 4})


@pytest.mark.parametrize(
    ("tell", "they"),
    [
        (lambda point, label: (point + torch.rand(3), label), "are drawn at random"),
        (lambda point, label: ("a word", label), "are not tensors"),
    ],
)
def test_items_that_cannot_be_held_are_refused_in_a_line(tell, they):
    module = OwnData(None)
    loader = module.train_dataloader()
    loader.__dict__["dataset"] = Told(tell)
    module.train_dataloader = lambda: loader
    refused = rf"^data\.store: items that {they} cannot be kept in memory[^\n]*$"
    with pytest.raises(SettingError, match=refused):
        open_data(module, replace_store(READING, "memory"))


def test_a_share_smaller_than_a_batch_is_refused_in_a_line(tmp_path):
    config = placed(batch_size=13, clock="virtual", **PARTITIONED)
    message = r"^batch_size: 13 is more than a worker's share of 12 images"
    with pytest.raises(SettingError, match=message):
        run_tiny(config, tmp_path)
