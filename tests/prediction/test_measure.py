"""`paceline calibrate`: numbers by hand, and a real run on a tiny problem."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from paceline import cli
from paceline.errors import SettingError
from paceline.exchange.collectives import collective
from paceline.prediction import measure as calibrate
from paceline.prediction.calibration_files import cluster_path, write_cluster
from paceline.prediction.measure import (
    Exchanges,
    batch_sizes,
    measure,
    together_counts,
)
from paceline.prediction.messages import added_by, measure_pair
from paceline.prediction.this_machine import (
    Measured,
    MeasuredSteps,
    allreduce_link_of,
    exchange_seconds,
    jitter,
    line_through,
    profile_of_measured,
    rows,
)
from paceline.record.point import Point
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.timing.profile import Link, SharedCores
from tests.command_line import run
from tests.launching import launch

TINY = (
    "data=synthetic",
    "data.num_train=60",
    "data.num_validation=20",
    "data.num_test=20",
    "data.image_shape=[1,8,8]",
    "batch_size=12",
    "cluster.accelerator=cpu",
)
MADE = Measured(
    started=datetime(2030, 1, 2, 3, 4, tzinfo=UTC),
    load=0.25,
    cores=2,
    batch_size=12,
    pause=0.01,
    worker=MeasuredSteps(
        accelerator="cpu",
        num_parameters=100,
        steps={3: np.full(5, 0.001), 12: np.full(5, 0.002), 40: np.full(5, 0.004)},
        ddp_steps=np.array([0.0025, 0.0025, 9.0]),
    ),
    together={1: 0.002, 2: 0.0025, 4: 0.005},
    pair={
        "push_pull": {25: 3.0, 100: 9.0},
        "allreduce": {1: 9.0, 25: 2.5, 100: 4.0},
        "serve": {25: 1.5, 100: 4.5},
        "handle": {25: 1.0, 100: 2.5},
    },
    added={"push_pull": 0.1, "allreduce": 0.1},  # less than by themselves
    crowded={},
)


def cluster_of(name, root):
    """The cluster of a file in conf/cluster, as `cluster=NAME` composes it."""
    return Target("cluster", composed([f"cluster={name}"], root).values["cluster"]).build()


def test_the_profile_by_hand():
    profile = profile_of_measured(MADE)
    assert profile.node_link.latency == pytest.approx(0.5)
    assert profile.node_link.bandwidth == pytest.approx(100)
    assert profile.server_seconds == pytest.approx(0.5)
    assert profile.server_bandwidth == pytest.approx(100)
    assert profile.server_copy_bandwidth == pytest.approx(400)  # there and back in 0.005 s a byte


def test_what_an_exchange_adds_in_training_besides_its_own_time():
    """9 s for 400 bytes by itself, 4.5 s of the server, 4 s of an all-reduce."""
    assert exchange_seconds(MADE) == (0, 0)
    added = {"push_pull": 9 + 4.5 + 5, "allreduce": 4 + 6}
    assert exchange_seconds(replace(MADE, added=added)) == pytest.approx((5, 6))


def test_messages_of_a_crowd_by_hand():
    """8 workers send 224 messages and 14 vectors, which 2 cores pass at 100 bytes/s each."""
    assert profile_of_measured(MADE).message_seconds == {}
    times = {10: (14 * 40 / 100 + 112) / 2, 100: (14 * 400 / 100 + 112) / 2}
    profile = profile_of_measured(replace(MADE, crowded={8: times}))
    assert profile.message_seconds == pytest.approx({8: 0.5})
    assert profile.message_bandwidth == pytest.approx({8: 100})
    assert collective("native").seconds(400, 8, profile) == pytest.approx(times[100])


def test_a_crowd_fits_into_memory(monkeypatch):
    monkeypatch.setattr(calibrate, "call_in_processes", lambda *_, workers: [workers])
    crowds = []
    for cores in (2, 8, 9):
        monkeypatch.setattr(calibrate.provenance, "num_cores", lambda cores=cores: cores)
        crowds.append([*calibrate._crowded(1000, 1, 0.0)])
    assert crowds == [[4, 8, 16], [16, 32], []]


def test_bytes_that_take_no_time_have_a_rate_all_the_same():
    profile = profile_of_measured(replace(MADE, crowded={8: {10: 3.0, 100: 2.0}}))
    assert profile.message_bandwidth == {8: 1e15}


@pytest.fixture
def asked(monkeypatch):
    """The arguments of each measurement by its name, none of which is made."""
    found = {
        "measure_steps": [MADE.worker],
        "measure_together": [{1: 1.0}],
        "measure_pair": [MADE.pair, {}],
        "measure_exchange": [MADE.added],
    }
    calls = {name: [] for name in found}

    def launched(function, *arguments, **_):
        calls[function.__name__].append(arguments)
        return found[function.__name__]

    monkeypatch.setattr(calibrate, "call_in_processes", launched)
    monkeypatch.setattr(calibrate, "together_counts", lambda cores: [1])
    monkeypatch.setattr(calibrate, "_crowded", lambda *_: {})
    return calls


def test_a_message_comes_after_a_pause_of_an_emulated_step(root, asked):
    """At least 10 ms; how long a modelled machine takes itself is not emulated."""
    modelled = ["cluster=two_cores_small_cnn"]
    for overrides in ([], ["cluster.step_seconds=0.2"], ["cluster.step_seconds=0.001"], modelled):
        measure(composed([*TINY, *overrides], root))
    assert [each[-1] for each in asked["measure_pair"]] == [0.01, 0.2, 0.01, 0.01]


def test_one_worker_is_measured_and_blocks_of_steps_fill_the_time(root, asked):
    """A step of 12 images takes 2 ms: 24 blocks share a second or have 2 steps each."""
    for seconds in (1, 0.001):
        measure(composed([*TINY, "workers=4", "scheme=local_sgd"], root), seconds=seconds)
    blocks = [(point.workers, block) for point, _, block in asked["measure_exchange"]]
    assert blocks == [(1, 20), (1, 2)]


def test_on_a_gpu_all_that_fills_a_given_time_takes_less_than_a_minute(root, asked, monkeypatch):
    """And nothing is measured twice: other workers do not share the GPU."""
    monkeypatch.setattr(calibrate.Point, "device", "cuda")
    assert measure(composed(TINY, root)).together == {1: pytest.approx(0.002)}
    assert not asked["measure_together"]
    ((_, seconds),) = asked["measure_steps"]
    ((*_, block),) = asked["measure_exchange"]
    exchanges = block * MADE.worker.steps[12][0] * 25 * 2  # of each kind
    assert 20 < 4 * seconds + exchanges < 60  # of three batch sizes, and DDP


def test_batches_that_do_not_fit_into_memory_are_left_out_or_refused(root, monkeypatch):
    most = 12

    def seconds(self, batch_size, seconds, **options):
        if batch_size > most:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
        return np.full(2, 0.001 * batch_size)

    monkeypatch.setattr(calibrate.TimedSteps, "seconds", seconds)
    for name in ("join", "leave", "SyncAllReduceStrategy"):
        monkeypatch.setattr(calibrate, name, lambda *_: Mock())
    point = Point.of(composed(TINY, root))
    assert [*calibrate.measure_steps(point, 1.0).steps] == [3, 12]
    most = 3
    with pytest.raises(SettingError, match=r"^batch_size: 12 images do not fit into the GPU's mem"):
        calibrate.measure_steps(point, 1.0)


def test_jitter_is_sigma_and_deaf_to_a_step_that_was_held_up():
    steps = np.exp(np.random.default_rng(0).normal(-5, 0.3, size=10_000))
    assert jitter(steps) == pytest.approx(0.3, rel=0.03)
    assert jitter(np.append(steps, 1000.0)) == pytest.approx(0.3, rel=0.03)


@pytest.mark.parametrize(
    ("batch_size", "num_train", "sizes"),
    [(32, 1000, [8, 32, 128]), (32, 100, [8, 32, 100]), (1, 3, [1, 3]), (2, 2, [1, 2])],
)
def test_batch_sizes_around_what_is_asked_for(batch_size, num_train, sizes):
    assert batch_sizes(batch_size, num_train) == sizes


def test_the_file_holds_what_was_measured(root):
    path = root / "conf/cluster/made.yaml"
    write_cluster(MADE, Point.of(composed(TINY, root)), path)
    cluster = cluster_of("made", root)
    assert list(path.parent.glob("made*")) == [path]
    known = [*composed(["cluster=virtual"], root).values["cluster"], "allreduce_link"]
    values = composed(["cluster=made"], root).values["cluster"]
    assert list(values) == [*known, "message_seconds", "message_bandwidth", "shared_cores"]
    assert cluster.step_seconds is None
    assert cluster.shared_cores == SharedCores(
        step_seconds={3: 0.001, 12: 0.002, 40: 0.004},
        speeds={1: 1, 2: 1.6, 4: 1.6},
        ddp_seconds=0.0005,
    )
    assert cluster.profile.node_link == Link(0.5, 100)
    assert cluster.profile.allreduce_link == Link(1, 200)
    assert (cluster.server_seconds, cluster.server_bandwidth) == (0.5, 100)
    assert cluster.server_copy_bandwidth == 400
    comments = path.read_text()
    assert "2030-01-02 03:04 UTC, load average 0.25 before" in comments
    assert "small_cnn (100 parameters) on synthetic, 32-true" in comments
    assert "all-reduce of 25 weights, 2 workers: 2.5e+03 ms; by this profile 2.5e+03 ms" in comments


def test_a_gpu_is_no_core_that_others_share(root):
    on_gpu = replace(MADE, worker=replace(MADE.worker, accelerator="cuda"))
    write_cluster(on_gpu, Point.of(composed(TINY, root)), root / "conf/cluster/on_gpu.yaml")
    cluster = cluster_of("on_gpu", root)
    assert cluster.step_seconds == {3: 0.001, 12: 0.002, 40: 0.004}
    assert cluster.shared_cores is None


@pytest.mark.parametrize("name", ["Mine", "myMachine", "mä", "a/b", ""])
def test_a_name_that_cannot_be_chosen_is_refused(name, tmp_path):
    with pytest.raises(SettingError, match="no name of a cluster"):
        cluster_path(tmp_path, name)


def test_only_a_calibrated_file_is_replaced(root, tmp_path):
    write_cluster(MADE, Point.of(composed(TINY, root)), tmp_path / "made.yaml")
    assert cluster_path(tmp_path, "made") == tmp_path / "made.yaml"
    for name in ("titan", "local", "virtual"):
        with pytest.raises(SettingError, match="another cluster's name"):
            cluster_path(root / "conf/cluster", name)


def test_the_table_shows_every_number_with_its_unit():
    found = dict(rows(MADE))
    assert found["step at batch size 12"] == "2 ms, 6,000 images/s; n=5, jitter 0.00"
    assert found["4 workers at once"] == "5 ms a step, 1.60 times the speed of one"
    assert found["DistributedDataParallel itself"] == "0.5 ms a step"


@pytest.mark.slow
def test_a_real_run_measures_every_part(monkeypatch, root):
    """Messages are few, as a pause comes before each; crowds of 4 and 8 workers a core are more of
    the same, for half a minute.
    """
    config = composed((*TINY, "cluster.step_seconds=0.2"), root)
    monkeypatch.setattr(calibrate, "_CROWDS", (1, 2))
    found = measure(config, seconds=0.05, most_weights=1000, repetitions=1)
    by_size = found.worker.steps
    assert list(by_size) == [3, 12, 40]
    assert all(np.all(seconds > 0) and len(seconds) for seconds in by_size.values())
    sizes = [list(found.pair[name]) for name in ("push_pull", "allreduce", "serve", "handle")]
    assert sizes[0] == sizes[1] == sizes[2]
    assert found.worker.num_parameters in sizes[0]
    assert list(found.added) == ["push_pull", "allreduce"]
    assert list(found.together) == together_counts(found.cores)
    assert all(each > 0 for each in found.together.values())
    few = found.cores <= 8
    assert list(found.crowded) == ([found.cores, 2 * found.cores] if few else [])
    assert all(each > 0 for times in found.crowded.values() for each in times.values())
    write_cluster(found, Point.of(config), root / "conf/cluster/found.yaml")
    cluster = cluster_of("found", root)
    assert cluster.profile.num_nodes(8) == 1
    times = cluster.step_times(12, seed=0)
    assert times.step_seconds == pytest.approx(np.mean(by_size[12]), rel=0.01)


def test_every_other_block_of_steps_has_an_exchange(monkeypatch):
    """A step takes a second, an exchange ten; the first block is not counted."""
    now = itertools.count()
    monkeypatch.setattr(calibrate.time, "perf_counter", lambda: float(next(now)))
    exchanges = Exchanges(lambda: [next(now) for _ in range(10)], block=3)
    for _ in range(5 * 3):
        exchanges.on_train_batch_end()
    assert list(exchanges.seconds) == [*[1] * 3, *[11] * 3] * 2
    assert added_by(exchanges.seconds, 3) == 10


def test_the_command_prints_the_table_and_the_file(root, monkeypatch, capsys):
    monkeypatch.setattr(calibrate, "measure", lambda config: MADE)
    monkeypatch.chdir(root)
    monkeypatch.setattr("sys.argv", ["paceline", "calibrate", *TINY])
    with pytest.raises(SystemExit) as left:
        cli.main()
    lines = capsys.readouterr().out.splitlines()
    assert left.value.code == 0
    assert any(line.split()[:5] == ["step", "at", "batch", "size", "3"] for line in lines)
    assert lines[-1] == "conf/cluster/this_machine.yaml"
    assert "2030-01-02" in (root / lines[-1]).read_text()


@pytest.mark.parametrize(
    ("setting", "named"),
    [("batch_size=0", "batch_size"), ("data=nowhere", "data"), ("batch_size=41", "batch_size")],
)
def test_what_cannot_be_measured_is_refused_by_its_name(root, setting, named):
    with pytest.raises(SettingError) as refused:
        measure(composed([*TINY, setting], root), seconds=0.01, most_weights=10)
    assert refused.value.setting == named


def test_bad_settings_end_on_one_line(root):
    code, lines, errors = run(root, "calibrate", "cluster.nonsense=1")
    assert (code, lines) == (2, [])
    assert errors == ["paceline: cluster.nonsense: there is no such setting"]


SIZES = [1, 500]


def test_the_least_time_and_the_most_weights_make_a_line():
    """0.5 s and a second for each 100 bytes; what is between has no say."""
    times = {25: 1.5, 50: 9.0, 100: 4.5}
    assert line_through(times) == pytest.approx((0.5, 0.01))


def test_a_message_slower_than_a_larger_one_has_no_say():
    assert line_through({1: 9.0, 25: 1.5, 100: 4.5}) == pytest.approx((0.5, 0.01))


def test_noise_makes_no_negative_costs():
    assert line_through({1: 2.0, 100: 1.0}) == (2.0, 0.0)
    assert line_through({1: 0.001, 2: 1.0})[0] == 0


def test_what_is_added_is_a_median_over_blocks():
    """The third pair of blocks was held up."""
    steps = [1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 2.4, 2.6, 1.0, 1.0, 9.0, 9.0]
    assert added_by(steps, 2) == pytest.approx(0.5)
    assert added_by([2.0, 1.0], 1) == 0


def test_two_processes_measure_each_other(tmp_path):
    target = f"{measure_pair.__module__}:{measure_pair.__name__}"
    worker, server = launch(target, (SIZES, 1), workers=1, servers=1, log_folder=tmp_path)
    assert list(worker) == ["push_pull", "allreduce"]
    assert list(server) == ["serve", "handle"]
    for times in (*worker.values(), *server.values()):
        assert list(times) == SIZES
        assert all(0 < seconds < 1 for seconds in times.values())


def test_gloos_messages_by_hand():
    """Two rounds of a second; all the weights, by every core, at 50 bytes/s."""
    assert allreduce_link_of(2.0, 0.02, cores=2) == pytest.approx((1, 0.02))
    assert allreduce_link_of(2.0, 0.02, cores=64) == pytest.approx((1, 0.02))
