"""`paceline calibrate`: numbers by hand, and a real run on a tiny problem."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from paceline import cli
from paceline.errors import SettingError
from paceline.exchange.collectives import collective
from paceline.prediction import measure as calibrate
from paceline.prediction.calibration import (
    MESSAGES,
    STEPS,
    Measured,
    cluster_path,
    line_through,
    profile_of_measured,
    rows,
    settings_of,
    write_cluster,
)
from paceline.prediction.measure import (
    StepKind,
    TimedSteps,
    added_by,
    batch_sizes,
    jitter,
    measure,
    measure_messages,
    together_counts,
)
from paceline.record.point import Point
from paceline.record.target import Target
from paceline.study.compose import composed
from paceline.timing.profile import Link, SharedCores
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
    accelerator="cpu",
    num_weights=100,
    batch_size=12,
    pause=0.01,
    times={
        "step": {3: 0.001, 12: 0.002, 40: 0.004},
        "jitter": {12: 0.0},
        "ddp": {12: 0.0005},
        "together": {1: 0.002, 2: 0.0025, 4: 0.005},
        "push_pull": {25: 3.0, 100: 9.0},
        "allreduce": {1: 9.0, 25: 2.5, 100: 4.0},
        "serve": {25: 1.5, 100: 4.5},
        "handle": {25: 1.0, 100: 2.5},
        "push in training": {100: 0.1},  # less than by themselves
        "all-reduce in training": {100: 0.1},
    },
    crowds={},
)


def made(**times):
    return replace(MADE, times={**MADE.times, **times})


def cluster_of(name, root):
    """The cluster of a file in conf/cluster, as `cluster=NAME` composes it."""
    return Target("cluster", composed([f"cluster={name}"], root).values["cluster"]).build()


def test_messages_of_a_crowd_by_hand():
    """8 workers send 224 messages and 14 vectors, which 2 cores pass at 100 bytes/s each."""
    assert profile_of_measured(MADE).message_seconds == {}
    times = {10: (14 * 40 / 100 + 112) / 2, 100: (14 * 400 / 100 + 112) / 2}
    profile = profile_of_measured(replace(MADE, crowds={8: times}))
    assert profile.message_seconds == pytest.approx({8: 0.5})
    assert profile.message_bandwidth == pytest.approx({8: 100})
    assert collective("native").seconds(400, 8, profile) == pytest.approx(times[100])


def test_a_crowd_fits_into_memory(monkeypatch):
    monkeypatch.setattr(calibrate, "call_in_processes", lambda *_, workers: [{"allreduce": {}}])
    crowds = []
    for cores in (2, 8, 9):
        monkeypatch.setattr(calibrate.provenance, "num_cores", lambda cores=cores: cores)
        crowds.append([*calibrate._crowds(1000, 1, 0.0)])
    assert crowds == [[4, 8, 16], [16, 32], []]


@pytest.fixture
def asked(monkeypatch):
    """The arguments of each measurement by its name, none of which is made."""
    calls = {name: [] for name in ("measure_steps", "measure_messages", "measure_exchange")}

    def launched(function, *arguments, workers=1, servers=0):
        calls[function.__name__].append(arguments)
        if function is calibrate.measure_steps:
            return [{kind: np.full(5, 0.002) for kind in arguments[1]}] * workers
        return [{name: MADE.times[name] for name in MADE.times if name != "together"}] * 2

    monkeypatch.setattr(calibrate, "call_in_processes", launched)
    monkeypatch.setattr(calibrate, "together_counts", lambda cores: [1])
    monkeypatch.setattr(calibrate, "_crowds", lambda *_: {})
    return calls


def test_on_a_gpu_all_that_fills_a_given_time_takes_less_than_a_minute(root, asked, monkeypatch):
    """And nothing is measured twice: other workers do not share the GPU."""
    monkeypatch.setattr(calibrate.Point, "device", "cuda")
    assert measure(composed(TINY, root)).times["together"] == {1: pytest.approx(0.002)}
    ((_, kinds, seconds),) = asked["measure_steps"]
    assert kinds == [StepKind(3), StepKind(12), StepKind(40), StepKind(12, ddp=True)]
    ((*_, block),) = asked["measure_exchange"]
    exchanges = block * 0.002 * 25 * 2  # of each kind
    assert 20 < len(kinds) * seconds + exchanges < 60


def test_batches_that_do_not_fit_into_memory_are_left_out_or_refused(root, monkeypatch):
    most = 12

    def in_time(self, kind, seconds):
        if kind.batch_size > most:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
        return np.full(2, 0.001 * kind.batch_size)

    monkeypatch.setattr(calibrate.TimedSteps, "in_time", in_time)
    for name in ("join", "leave"):
        monkeypatch.setattr(calibrate, name, Mock())
    monkeypatch.setattr(calibrate, "dist", Mock(get_rank=lambda: 0))
    point, kinds = Point.of(composed(TINY, root)), [*map(StepKind, (3, 12, 40))]
    assert [*calibrate.measure_steps(point, kinds, 1.0)] == kinds[:2]
    most = 3
    with pytest.raises(SettingError, match=r"^batch_size: 12 images do not fit into the GPU's mem"):
        calibrate.measure_steps(point, kinds, 1.0)


def test_jitter_is_sigma_and_deaf_to_a_step_that_was_held_up():
    steps = np.exp(np.random.default_rng(0).normal(-5, 0.3, size=10_000))
    assert jitter(steps) == pytest.approx(0.3, rel=0.03)
    assert jitter(np.append(steps, 1000.0)) == pytest.approx(0.3, rel=0.03)


def test_batch_sizes_around_what_is_asked_for():
    asked = {(32, 1000): [8, 32, 128], (32, 100): [8, 32, 100], (1, 3): [1, 3], (2, 2): [1, 2]}
    assert {each: batch_sizes(*each) for each in asked} == asked


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
    gpu = path.with_name("on_gpu.yaml")  # which is no core that others share
    write_cluster(replace(MADE, accelerator="cuda"), Point.of(composed(TINY, root)), gpu)
    found = cluster_of("on_gpu", root)
    assert (found.step_seconds, found.shared_cores) == ({3: 0.001, 12: 0.002, 40: 0.004}, None)


@pytest.mark.slow
def test_a_real_run_measures_every_part(monkeypatch, root):
    """Messages are few, as a pause comes before each; crowds of 4 and 8 workers a core are more of
    the same, for half a minute.
    """
    config = composed((*TINY, "cluster.step_seconds=0.2"), root)
    monkeypatch.setattr(calibrate, "_CROWDS", (1, 2))
    found = measure(config, seconds=0.05, most_weights=1000, repetitions=1)
    times = found.times
    assert {*times} == {*MADE.times}
    assert [*times["step"]] == [3, 12, 40]
    sizes = [[*times[name]] for name in ("push_pull", "allreduce", "serve", "handle")]
    assert sizes[0] == sizes[1] == sizes[2] == sizes[3]
    assert found.num_weights in sizes[0]
    assert [*times["together"]] == together_counts(found.cores)
    assert all(each > 0 for name in ("step", "together", "serve") for each in times[name].values())
    few = found.cores <= 8
    assert [*found.crowds] == ([found.cores, 2 * found.cores] if few else [])
    assert all(each > 0 for crowd in found.crowds.values() for each in crowd.values())
    write_cluster(found, Point.of(config), root / "conf/cluster/found.yaml")
    cluster = cluster_of("found", root)
    assert cluster.profile.num_nodes(8) == 1
    steps = cluster.step_times(12, seed=0)
    assert steps.step_seconds == pytest.approx(times["step"][12], rel=0.01)


def test_what_cannot_be_measured_is_refused_by_its_name(root):
    for setting, named in (("batch_size=0",) * 2, ("data=nowhere", "data"), ("batch_size=41",) * 2):
        with pytest.raises(SettingError) as refused:
            measure(composed([*TINY, setting], root), seconds=0.01, most_weights=10)
        assert refused.value.setting == named.partition("=")[0]


def test_two_processes_measure_each_other(tmp_path):
    target = f"{measure_messages.__module__}:{measure_messages.__name__}"
    arguments = [1, 500], 1, 0.01, True
    worker, server = launch(target, arguments, workers=1, servers=1, log_folder=tmp_path)
    assert [*worker] == ["push_pull", "allreduce"]
    assert [*server] == ["serve", "handle", "allreduce"]
    for times in (*worker.values(), *server.values()):
        assert [*times] == [1, 500]
        assert all(0 < seconds < 1 for seconds in times.values())


def test_a_line_through_times_of_messages():
    """The least time and the most weights have a say, none between or slower than a larger one."""
    assert line_through({25: 1.5, 50: 9.0, 100: 4.5}) == pytest.approx((0.5, 0.01))
    assert line_through({1: 9.0, 25: 1.5, 100: 4.5}) == pytest.approx((0.5, 0.01))
    assert line_through({1: 2.0, 100: 1.0}) == (2.0, 0.0)  # noise makes no negative costs
    assert line_through({1: 0.001, 2: 1.0}) == pytest.approx((0.0, 0.24975))


def test_the_profile_by_hand():
    """Also where bytes take no time, and for gloo: two rounds of a second, all the weights by every
    core at 50 bytes/s.
    """
    profile = profile_of_measured(MADE)
    assert (profile.node_link.latency, profile.node_link.bandwidth) == pytest.approx((0.5, 100))
    assert (profile.server_seconds, profile.server_bandwidth) == pytest.approx((0.5, 100))
    assert profile.server_copy_bandwidth == pytest.approx(400)  # there and back in 0.005 s a byte
    flat = profile_of_measured(replace(MADE, crowds={8: {10: 3.0, 100: 2.0}}))
    assert flat.message_bandwidth == {8: 1e15}
    for cores in (2, 64):
        found = replace(made(allreduce={1: 9.0, 25: 4.0, 100: 10.0}), cores=cores)
        assert profile_of_measured(found).allreduce_link == Link(1, 50)


def test_what_an_exchange_adds_in_training_besides_its_own_time():
    """9 s for 400 bytes by itself, 4.5 s of the server, 4 s of an all-reduce. What is added is a
    median over blocks, of which one may be held up.
    """
    for push, allreduce, besides in ((0.1, 0.1, (0, 0)), (9 + 4.5 + 5, 4 + 6, (5, 6))):
        times = {"push in training": {100: push}, "all-reduce in training": {100: allreduce}}
        cores = settings_of(STEPS, made(**times))["shared_cores"]
        assert (cores["push_seconds"], cores["allreduce_seconds"]) == pytest.approx(besides)
    steps = [1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 2.4, 2.6, 1.0, 1.0, 9.0, 9.0]
    assert added_by(steps, 2) == pytest.approx(0.5)
    assert added_by([2.0, 1.0], 1) == 0


def test_every_other_block_of_steps_has_an_exchange(root, monkeypatch):
    """A step takes a second, an exchange ten; the first block is not counted."""
    now = itertools.count()
    monkeypatch.setattr(calibrate, "time", SimpleNamespace(perf_counter=lambda: float(next(now))))
    steps = TimedSteps(Point.of(composed(TINY, root)))
    seconds = steps.exchanging(lambda: [next(now) for _ in range(10)], block=2)
    assert seconds.tolist() == [*[1] * 2, *[11] * 2] * 12
    assert added_by(seconds, 2) == 10


def test_pauses_are_those_of_emulated_steps_and_blocks_fill_the_time(root, asked):
    """At least 10 ms; how long a modelled machine takes itself is not emulated. One worker is
    measured: a step of 12 images takes 2 ms, and 24 blocks share a second or have 2 steps each.
    """
    paced = ["cluster.step_seconds=0.2"], ["cluster.step_seconds=0.001"]
    for overrides in ([], *paced, ["cluster=two_cores_small_cnn"]):
        measure(composed([*TINY, *overrides], root))
    assert [each[2] for each in asked["measure_messages"]] == [0.01, 0.2, 0.01, 0.01]
    asked["measure_exchange"].clear()
    for seconds in (1, 0.001):
        measure(composed([*TINY, "workers=4", "scheme=local_sgd"], root), seconds=seconds)
    blocks = [(point.workers, block) for point, _, block in asked["measure_exchange"]]
    assert blocks == [(1, 20), (1, 2)]


def test_only_a_calibrated_file_is_replaced_by_a_name_that_can_be_chosen(root, tmp_path):
    write_cluster(MADE, Point.of(composed(TINY, root)), tmp_path / "made.yaml")
    assert cluster_path(tmp_path, "made") == tmp_path / "made.yaml"
    others = dict.fromkeys(("titan", "local", "virtual"), "another cluster's name")
    wrong = dict.fromkeys(("Mine", "myMachine", "mä", "a/b", ""), "no name of a cluster")
    for name, said in (others | wrong).items():
        with pytest.raises(SettingError, match=said):
            cluster_path(root / "conf/cluster", name)


def test_the_command_prints_every_number_with_its_unit_and_the_file(root, monkeypatch, capsys):
    found = dict(rows(MADE))
    assert len(found) >= len(STEPS) + len(MESSAGES)
    assert found["4 workers at once"] == "1.6 times the speed of one"
    assert found["DistributedDataParallel"] == "0.5 ms"
    assert found["server's update of weights"] == "1e-07 GB/s"
    monkeypatch.setattr(calibrate, "measure", lambda config: MADE)
    monkeypatch.chdir(root)
    monkeypatch.setattr("sys.argv", ["paceline", "calibrate", *TINY])
    with pytest.raises(SystemExit) as left:
        cli.main()
    *table, path = capsys.readouterr().out.splitlines()
    assert left.value.code == 0
    assert any(line.split()[:4] == ["step", "of", "3", "images"] for line in table)
    assert path == "conf/cluster/this_machine.yaml"
    assert "2030-01-02" in (root / path).read_text()
