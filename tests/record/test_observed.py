"""From what processes saw to a record: numbers and images per second, checked by hand."""

import itertools
import json
import math
import re
from collections import Counter
from dataclasses import astuple, replace

import numpy as np
import pytest

from paceline.clock.reports import ServerReport, StrategyReport, WorkerReport
from paceline.cluster.supervisor import LostWorker
from paceline.data.order import SampleStream, StreamOrder
from paceline.data.placement import DataMoved
from paceline.record.observed import Observed, SnapshotScore, TrainingReport, images_per_second
from paceline.record.result import measured, result
from paceline.record.rows import curve, phases, staleness, timeline
from paceline.scheme.async_parameter_server import AsyncParameterServer
from paceline.scheme.gossip import Gossip
from paceline.scheme.independent import Independent
from paceline.scheme.local_sgd import LocalSGD
from paceline.scheme.stale_synchronous import StaleSynchronous
from paceline.scheme.sync_allreduce import SyncAllReduce
from paceline.scheme.sync_parameter_server import SyncParameterServer
from tests.tiny import CLOCKS, NUM_TRAIN, point_of, run_tiny, tiny_point

SYNCHRONOUS, AT_ONCE = SyncAllReduce(), AsyncParameterServer(1)
SETTINGS = {"scheme": SYNCHRONOUS, "batch_size": 4, "warmup_fraction": 0.0}
ORDER = StreamOrder(SampleStream(16, seed=3), 2, 4)


def scored(samples, **changes):
    score = {
        "samples": samples,
        "updates": samples // 4,
        "seconds": samples / 10,
        "loss": 1.5,
        "top1": 0.75,
        "top5": 1.0,
        "num_classes": 10,
        "largest_class": 0.1,
        "averaged_top1": None,
        "num_images": 500,
        "right": b"",
        "real_seconds": samples / 20,
    }
    return SnapshotScore(**(score | changes))


def worker(number=0, **changes):
    """Two steps of 4 images, at 1 s and 2 s; thresholds after 8 and 16 samples of both workers.

    `changes`: of its WorkerReport, of its StrategyReport, or of its TrainingReport.
    """
    own = {
        "worker": number,
        "steps": 2,
        "step_ends": np.array([1.0, 2.0]),
        "late_steps": 1,
        "timeline": [(number, "compute", 0.0, 1.0)],
        "seconds_data": 0.25,
        "seconds_communicating": 0.5,
        "bytes_sent": 100,
        "bytes_received": 200,
        "activation_bytes_sent": 0,
        "activation_bytes_received": 0,
        "weights_digest": "abc",
    }
    strategy = {"counted": 2, "updates": 2, "diverged": False}
    training = {
        "evaluated": "weights",
        "images_per_update": 8,
        "num_parameters": 98,
        "lr": 0.1,
        "momentum": 0.9,
        "thresholds": [8, 16],
        "losses": [(3.0, 1), (2.0, 1)],
        "real_step_ends": np.array([0.5, 1.0]),
        "order": ORDER,
        "images_seen": np.array([True, True, False, number == 1]),
        "scores": [scored(8)] if number == 1 else [scored(16)],
        "test": scored(16, top1=0.5, top5=0.9, loss=2.5) if number == 0 else None,
        "joined": 48.0,
        "built": 49.0,
        "training_started": 50.0 + number,
        "peak_rss_bytes": 1000 + number,
        "stopped_seconds": 2.0 * number,
        "moved": DataMoved(),
        "shard": 0,
    }
    for part in (own, strategy, training):
        part |= {name: changes.pop(name) for name in [*changes] if name in part}
    assert not changes
    report = StrategyReport(**strategy, workers=[WorkerReport(**own)])
    return TrainingReport(strategy=report, **training)


def server(number, pushes, **changes):
    report = ServerReport(
        number, pushes, updates=len(pushes), samples=4 * len(pushes), peak_rss_bytes=5000
    )
    return replace(report, **changes)


def observed(*servers, scheme=SYNCHRONOUS, first=None, second=None):
    workers = [worker(0, **(first or {})), worker(1, **(second or {}))]
    return Observed(workers, servers, **(SETTINGS | {"scheme": scheme}))


def test_training_loss_is_the_mean_over_all_workers_steps():
    """A worker that took 3 of 4 steps counts three times."""
    rows = curve(observed())  # in order, whoever evaluated
    assert [(row.samples, row.seconds) for row in rows] == [(8, 0.8), (16, 1.6)]
    first, second = ({"losses": [part, (0.0, 0)]} for part in ((3.0, 3), (5.0, 1)))
    assert [row.train_loss for row in curve(observed(first=first, second=second))] == [2.0, None]


def test_staleness_is_a_histogram_per_server():
    point = observed(
        server(0, [(0, 0), (1, 1), (0, 1), (1, 3)]), server(1, [(1, 0), (0, 1), (1, 0), (0, 0)])
    )
    rows = [(0, 0, 1), (0, 1, 2), (0, 3, 1), (1, 0, 3), (1, 1, 1)]
    assert [astuple(row) for row in staleness(point)] == rows
    assert stale_of(point) == (6 / 8, 3, 4 / 8)
    assert measured(point)["updates"] == 4  # at server 0


def stale_of(point):
    numbers = measured(point)
    return tuple(numbers[name] for name in ("staleness_mean", "staleness_max", "stale_share"))


def test_a_dropped_push_is_stale_in_no_number():
    """Worker 1's first push came too late for version 0, and was dropped."""
    late = server(0, [(0, 0), (1, 1), (0, 0), (1, 0)], dropped_steps=[(1, 0)])
    seen = {"images_seen": np.ones(16, bool)}
    point = observed(late, first=seen, second=seen)
    assert [astuple(row) for row in staleness(point)] == [(0, 0, 3)]
    assert stale_of(point) == (0, 0, 0)


def test_phases_add_up_to_the_time_of_a_worker_and_a_span_is_a_row():
    point = observed()
    assert [astuple(row) for row in phases(point)] == [
        (number, 2, 8, 0.25, 1.25, 0.5, 100, 200, 0, 0) for number in (0, 1)
    ]
    assert [astuple(row) for row in timeline(point)] == [
        (number, "compute", 0.0, 1.0) for number in (0, 1)
    ]


def test_a_result_by_hand():
    found = result(observed())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    expected = {
        "status": "finished",
        "reason": "",
        "workers": 2,
        "servers": 0,
        "global_batch_size": 8,
        "samples": 16,
        "distinct_samples": 3,
        "updates": 2,
        "seconds": 2.0,
        "images_per_second": 8.0,
        "updates_per_second": 1.0,
        "top1": 0.75,
        "train_loss": 2.0,
        "test_top1": 0.5,
        "test_loss": 2.5,
        "staleness_mean": 0.0,
        "data_wait_share": 0.125,
        "bytes_sent": 200,
        "bytes_received": 400,
        "peak_rss_bytes": 1001,
        "stopped_seconds": 2.0,
    }
    assert {name: found[name] for name in expected} == expected
    assert observed().training_started == 50.0


def test_numbers_do_not_depend_on_the_order_of_workers():
    reports = [
        worker(0, step_ends=np.array([1.0, 2.0]), real_step_ends=np.array([0.5, 4.0])),
        worker(1, step_ends=np.array([1.5, 5.0]), real_step_ends=np.array([0.5, 1.0])),
        worker(2, seconds_data=0.75, bytes_sent=7, losses=[(9.0, 3), (2.0, 1)], test=None),
    ]
    numbers, rows = ([], [])
    for order in itertools.permutations(reports):
        point = Observed(order, **SETTINGS)
        numbers.append(measured(point))
        rows.append(curve(point))
    assert all(each == numbers[0] for each in numbers)
    assert all(each == rows[0] for each in rows)
    assert (numbers[0]["seconds"], numbers[0]["real_seconds"]) == (5.0, 4.0)


def test_bytes_add_up_over_workers_and_their_processes():
    reports = [
        worker(0, moved=DataMoved(3, 1.0)),
        worker(1, moved=DataMoved(5, 2.0)),
        worker(0, shard=1, bytes_sent=7, bytes_received=9),
    ]
    numbers = measured(Observed(reports, **SETTINGS))
    names = ("bytes_sent", "shuffle_bytes", "shuffle_seconds")
    assert [numbers[name] for name in names] == [100 + 100 + 7, 3 + 5, 2.0]


def test_one_process_may_stand_for_all_workers():
    """Its own step ends are of all workers' steps, in real time."""
    workers = [each.strategy.workers[0] for each in (worker(0), worker(1))]
    process = worker(0, real_step_ends=np.array([0.5, 1.0, 1.5, 2.0]), losses=[(5.0, 2), (4.0, 2)])
    process.strategy = replace(process.strategy, workers=workers, servers=[server(0, [(0, 0)] * 4)])
    numbers = measured(Observed([process], **SETTINGS))
    expected = {
        "samples": 16,
        "seconds": 2.0,
        "real_seconds": 2.0,
        "images_per_second": 8.0,
        "real_images_per_second": 8.0,
        "late_steps": 2,
        "train_loss": 2.0,
        "bytes_sent": 200,
        "staleness_mean": 0.0,
    }
    assert {name: numbers[name] for name in expected} == expected


def test_a_lost_worker_is_known_by_its_servers():
    """Nobody saw its images, nor when its steps ended."""
    lost = [LostWorker(1, "killed by SIGKILL")]
    seen = server(0, [(0, 0), (1, 0), (0, 0)], lost=[(1, "connection closed")])
    found = result(Observed([worker(0)], [seen], lost, **SETTINGS))
    reason = "killed by SIGKILL (server 0: connection closed)"
    assert found["lost_workers"] == [{"worker": 1, "steps": 1, "reason": reason}]
    assert found["reason"] == f"worker 1 was lost after 1 steps: {reason}"
    assert found["status"] == "finished"
    assert (found["distinct_samples"], found["images_per_second"]) == (None, None)


def test_a_gradient_that_was_dropped_counts_for_nothing():
    """Of 16 images, each in one batch, worker 1's second batch came too late."""
    shares = [ORDER.times_drawn([(k, 0), (k, 1)]) for k in range(2)]
    late = server(0, [(0, 0), (1, 0), (0, 0), (1, 1)], dropped_steps=[(1, 1)])
    first, second = ({"images_seen": share} for share in shares)
    point = observed(replace(late, samples=12), first=first, second=second)
    numbers = measured(point)
    assert (numbers["samples"], numbers["dropped_samples"]) == (12, 4)
    assert numbers["distinct_samples"] == 12
    assert numbers["images_per_second"] == 4.0  # one step after the first two
    assert numbers["real_images_per_second"] == 8.0
    assert [row.steps for row in phases(point)] == [2, 2]


@pytest.mark.parametrize("clock", CLOCKS)
def test_samples_are_those_behind_the_weights_on_both_clocks(clock, tmp_path):
    settings = {"scheme__backup_workers": 1, "training__epochs": 1, **CLOCKS[clock]}
    config = tiny_point("sync_parameter_server", 3, 4, **settings)
    seen, _ = run_tiny(config, tmp_path)
    servers = seen.servers if clock == "wall" else []  # modelled ones are in the reports
    scheme = point_of(config).scheme
    point = Observed(seen.training, servers, scheme=scheme, batch_size=4, warmup_fraction=0.1)
    numbers = measured(point)
    (report,) = point.servers
    late = late_steps(report.pushes)
    assert late
    assert sorted(late) == sorted(report.dropped_steps)
    assert numbers["samples"] == curve(point)[-1].samples == NUM_TRAIN
    assert numbers["dropped_samples"] == 4 * len(late)
    steps = [(each.worker, number) for each in point.workers for number in range(each.steps)]
    assert len(steps) == len(report.pushes)
    stream = SampleStream(NUM_TRAIN, config["seed"])
    firsts = [4 * (3 * number + k) for k, number in steps if (k, number) not in late]
    assert len(firsts) == NUM_TRAIN // 4
    applied = {i for first in firsts for i in stream.indices(first, 4).tolist()}
    assert numbers["distinct_samples"] == len(applied)


def late_steps(pushes):
    """Worker and number of each push of an older version."""
    pushed, late = Counter(), []
    for worker, versions in pushes:
        late += [(worker, pushed[worker])] if versions else []
        pushed[worker] += 1
    return late


FRESH = server(0, [(0, 0), (1, 0), (0, 0), (1, 0)])
STALE = server(0, [(0, 0), (1, 1), (0, 1), (1, 1)])
OTHER = {"weights_digest": "other"}
HELD = replace(STALE, held=1)
SERVED = SyncParameterServer(1)
SECOND = "server 0: push 1 of worker 1 was"
UNEQUAL = "not synchronous: workers ended with other weights"


@pytest.mark.parametrize(
    ("scheme", "servers", "second", "certificate"),
    [
        (SYNCHRONOUS, (), {}, "synchronous"),
        (SYNCHRONOUS, (), OTHER, UNEQUAL),
        (SERVED, (FRESH,), OTHER, "synchronous"),
        (SERVED, (STALE,), {}, f"not synchronous: {SECOND} 1 late, and applied"),
        (AT_ONCE, (STALE,), OTHER, "asynchronous: stale pushes seen"),
        (AT_ONCE, (FRESH,), {}, f"not asynchronous: {SECOND} 0 late, 1 if at once"),
        (AT_ONCE, (HELD,), {}, "not asynchronous: workers waited for another's step"),
        (StaleSynchronous(1, 1), (HELD,), {}, "partly asynchronous: stale pushes seen"),
        (StaleSynchronous(1, 1), (FRESH,), {}, "not partly asynchronous: no push was stale"),
        (LocalSGD(1), (), {}, "all ended equal"),
        (LocalSGD(1), (), OTHER, UNEQUAL),
        (Independent(), (), OTHER, "none: workers hold weights of their own"),
        (Gossip("ring"), (), OTHER, "not by the rule: no two took a mean"),
    ],
)
def test_what_a_run_may_be_called(scheme, servers, second, certificate):
    found = result(observed(*servers, scheme=scheme, second=second))
    assert found["certificate"] == certificate
    one = Observed([worker(0)], servers, **SETTINGS)
    assert measured(one)["certificate"] == "one worker"
    failed = certificate.startswith("not ")
    assert (found["status"], found["reason"]) == (
        ("failed", certificate) if failed else ("finished", "")
    )


@pytest.mark.parametrize(
    ("servers", "first", "reason"),
    [
        ((), {"scores": [scored(16, loss=math.nan)]}, "the validation loss is not finite"),
        ((), {"scores": [scored(16, loss=math.inf)]}, "the validation loss is not finite"),
        ((), {"diverged": True}, "weights are no longer finite"),
        ((server(0, [(0, 0)], diverged=True),), {}, "weights are no longer finite"),
    ],
)
def test_a_run_that_diverged_says_why_and_can_be_written(servers, first, reason):
    found = result(observed(*servers, first=first))
    assert (found["status"], found["reason"]) == ("diverged", reason)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("top1", "validation", "training", "status"),
    [
        (0.1, 2.3027, 2.3026, "untrained"),  # a guess of ten classes has ln 10 = 2.30259
        (0.1, 2.3027, 2.1, "finished"),
        (0.1, 2.29, 2.35, "finished"),  # after few steps, whose mean loss has the first in it
        (0.1, 2.3027, 23.1, "untrained"),
        (0.1, 23.1, 2.3027, "diverged"),
        (0.1, 300.5, 2.2, "diverged"),  # its last steps, whose training loss is a mean over many
        (0.1, 2.2, math.nan, "diverged"),
        (0.1, 9.0, 0.001, "finished"),
        (0.5, 23.1, 23.1, "finished"),  # the loss of a module may have any scale
    ],
)
def test_losses_tell_whether_a_run_at_chance_trained(top1, validation, training, status):
    """However its first scores were."""
    first = {"scores": [scored(16, top1=top1, loss=validation)], "losses": [(0, 0), (training, 1)]}
    second = {"scores": [scored(8, top1=0.6 - top1)], "losses": [(0, 0), (0, 0)]}
    found = result(observed(first=first, second=second))
    assert found["status"] == status
    said = status != "finished"
    assert (f"{validation:.4g}" in found["reason"], "2.303" in found["reason"]) == (said, said)
    assert (f"top-1, {top1:.3f}," in found["reason"]) == (not said and top1 == 0.1)
    assert ("disagree" in found["reason"]) == (training < 0.01)


def test_few_images_of_few_classes_are_no_reason_to_leave_a_run_out():
    """18 of 40 images in 3 classes are not shown to be above chance, and a loss of 1.06 is below
    that of a guess, ln 3 = 1.0986.
    """
    few = {"num_classes": 3, "largest_class": 14 / 40, "num_images": 40}
    last = scored(16, top1=18 / 40, loss=1.06, **few)
    found = result(observed(first={"scores": [last], "losses": [(0, 0), (1.06, 1)]}))
    assert (found["status"], found["top1"]) == ("finished", 0.45)
    words = re.findall(r"\d[.\d]*", found["reason"])
    assert words == ["1", "0.450", "40", "0.350", "0.576"]  # 0.35 + 3 x sqrt(0.35 x 0.65 / 40)


def test_a_run_that_measures_throughput_only_finishes_without_a_score():
    none = {"scores": [], "test": None}
    unscored = observed(first=none, second=none)
    unscored.is_scored = False
    found = result(unscored)
    assert (found["status"], found["top1"], found["test_top1"]) == ("finished", None, None)
    assert result(observed(first=none, second=none))["status"] == "diverged"


def rate(*step_ends, warmup=0.0, batch_size=8):
    return images_per_second([np.array(ends) for ends in step_ends], batch_size, warmup)


ENDS = [1.0, 2.0, 3.0, 4.0]
STARTING = [5.0, 10.0, 11.0, 12.0, 13.0, 20.0]


@pytest.mark.parametrize(
    ("step_ends", "warmup", "images"),
    [
        ([[5.0, 6.0, 7.0, 8.0]], 0.0, 8 * 3 / 3),  # after the first
        ([STARTING], 0.0, 8 * 5 / 15),
        ([STARTING], 0.2, 8 * 3 / 3),  # a slow start and a slow end are left out
        # of eight steps a quarter is warm-up; 1.5 of each worker are behind the 1.5 s after that
        ([ENDS, [1.5, 2.5, 3.5, 4.5]], 0.25, 8 * 3 / 1.5),
        # in lockstep, two steps per second, wherever the warm-up ends within a round
        *(([ENDS, ENDS], warmup, 16) for warmup in (0.0, 0.125, 0.25, 0.375)),
        # from 1 s to 5 s four steps, and one and two thirds, as a third of the first came before
        ([[*ENDS, 5.0], [3.0, 5.0]], 0.0, 8 * (4 + 5 / 3) / 4),
        *(([ends], 0.0, None) for ends in ([1.0], [])),  # too few steps
        ([ENDS[:3]], 0.4, None),
        ([[1.0], [1.0]], 0.0, None),
    ],
)
def test_images_per_second_are_those_of_steps_after_the_warm_up(step_ends, warmup, images):
    assert rate(*step_ends, warmup=warmup) == images


@pytest.mark.parametrize("rounds", [12, 13, 24])
def test_workers_that_end_their_rounds_a_moment_apart_are_no_faster(rounds):
    ends = np.arange(1.0, rounds + 1)
    workers = [ends + 0.001 * worker for worker in range(16)]
    assert rate(*workers, warmup=0.1) == pytest.approx(16 * 8, rel=0.001)
