"""From what processes saw to a record, with numbers that can be checked by hand."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from paceline.data.stream import SampleStream
from paceline.measurement.images_seen import images_seen
from paceline.measurement.observed import Findings
from paceline.record.record import CURVE, MEASURED, PHASES, STALENESS
from tests.tiny import CLOCKS, NUM_TRAIN, run_tiny, tiny_point

CONFIG = {"batch_size": 4, "measurement": {"warmup_fraction": 0.0}}


def scored(samples, **changes):
    score = {
        "samples": samples,
        "updates": samples // 4,
        "seconds": samples / 10,
        "loss": 1.5,
        "top1": 0.75,
        "top5": 1.0,
        "at_chance": False,
        "real_seconds": samples / 20,
    }
    return score | changes


def worker(number=0, **changes):
    """Two steps of 4 images, at 1 s and 2 s; thresholds after 8 and 16 samples of both workers."""
    seen = {
        "worker": number,
        "claim": "synchronous",
        "steps": 2,
        "step_ends": np.array([1.0, 2.0]),
        "real_step_ends": np.array([0.5, 1.0]),
        "late_steps": 1,
        "timeline": [(number, "compute", 0.0, 1.0)],
        "losses": [(3.0, 1), (2.0, 1)],
        "thresholds": [8, 16],
        "seconds_data": 0.25,
        "seconds_communicate": 0.5,
        "bytes_sent": 100,
        "bytes_received": 200,
        "images_seen": np.array([True, True, False, number == 1]),
        "num_parameters": 98,
        "lr": 0.1,
        "momentum": 0.9,
        "images_per_update": 8,
        "evaluated": "weights",
        "weights_digest": "abc",
        "counted": 2,
        "updates": 2,
        "diverged": False,
        "scores": [scored(8)] if number == 1 else [scored(16)],
        "test": {"top1": 0.5, "top5": 0.9, "loss": 2.5} if number == 0 else None,
        "peak_rss_bytes": 1000 + number,
        "training_started": 50.0 + number,
    }
    return seen | changes


def server(number, pushes, **changes):
    seen = {
        "server": number,
        "pushes": pushes,
        "updates": len(pushes),
        "samples": 4 * len(pushes),
        "dropped": 0,
        "dropped_steps": [],
        "held": 0,
        "diverged": False,
        "peak_rss_bytes": 5000,
    }
    return seen | changes


def findings(*servers, first=None, second=None):
    return Findings(CONFIG, [worker(0, **(first or {})), worker(1, **(second or {}))], [*servers])


def test_the_curve_is_in_order_whoever_evaluated():
    rows = findings().curve()
    assert [tuple(row) for row in rows] == [CURVE] * 2
    assert [row["samples"] for row in rows] == [8, 16]
    assert [row["seconds"] for row in rows] == [0.8, 1.6]


def test_training_loss_is_the_mean_over_all_workers_steps():
    """A worker that took 3 of 4 steps counts three times."""
    found = findings(
        first={"losses": [(3.0, 3), (0.0, 0)]}, second={"losses": [(5.0, 1), (0.0, 0)]}
    )
    assert [row["train_loss"] for row in found.curve()] == [2.0, None]


def test_staleness_is_a_histogram_per_server():
    found = findings(
        server(0, [(0, 0), (1, 1), (0, 1), (1, 3)]), server(1, [(1, 0), (0, 1), (1, 0), (0, 0)])
    )
    assert [tuple(row.values()) for row in found.staleness()] == [
        (0, 0, 1),
        (0, 1, 2),
        (0, 3, 1),
        (1, 0, 3),
        (1, 1, 1),
    ]
    assert tuple(found.staleness()[0]) == STALENESS
    result = found.result()
    assert (result["staleness_mean"], result["staleness_max"]) == (6 / 8, 3)
    assert result["stale_share"] == 4 / 8
    assert result["updates"] == 4  # at server 0


def test_phases_add_up_to_the_time_of_a_worker():
    rows = findings().phases()
    assert tuple(rows[0]) == PHASES
    assert rows[1] == {
        "worker": 1,
        "steps": 2,
        "samples": 8,
        "seconds_data": 0.25,
        "seconds_compute": 1.25,
        "seconds_communicate": 0.5,
        "bytes_sent": 100,
        "bytes_received": 200,
    }


def test_a_result_by_hand():
    result = findings().result()
    assert set(MEASURED) < result.keys()
    assert json.loads(json.dumps(result, allow_nan=False)) == result
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
    }
    assert {name: result[name] for name in expected} == expected
    assert findings().training_started() == 50.0


def test_a_gradient_that_was_dropped_counts_for_nothing():
    """Of 16 images, each in one batch, worker 1's second batch came too late."""
    config = CONFIG | {"workers": 2, "seed": 3}
    stream, sizes = SampleStream(16, 3), {"workers": 2, "batch_size": 4}
    shares = [images_seen(stream, [(k, 0), (k, 1)], **sizes) for k in range(2)]
    late = server(0, [(0, 0), (1, 0), (0, 0), (1, 1)], dropped_steps=[(1, 1)], dropped=1)
    found = Findings(
        config,
        [worker(0, images_seen=shares[0]), worker(1, images_seen=shares[1])],
        [late | {"samples": 12}],
    )
    result = found.result()
    assert (result["samples"], result["dropped_samples"]) == (12, 4)
    assert result["distinct_samples"] == 12
    assert result["images_per_second"] == 4.0  # one step after the first two
    assert result["real_images_per_second"] == 8.0
    assert [row["steps"] for row in found.phases()] == [2, 2]


@pytest.mark.parametrize("clock", CLOCKS)
def test_samples_are_those_behind_the_weights_on_both_clocks(clock, tmp_path):
    settings = {"scheme__backup_workers": 1, "training__epochs": 1, **CLOCKS[clock]}
    config = tiny_point("sync_parameter_server", 3, 4, **settings)
    seen, _ = run_tiny(config, tmp_path)
    *workers, report = seen
    found = Findings(config, workers, [report])
    result = found.result()
    late = late_steps(report["pushes"])
    assert late
    assert sorted(late) == sorted(map(tuple, report["dropped_steps"]))
    assert result["samples"] == found.curve()[-1]["samples"] == NUM_TRAIN
    assert result["dropped_samples"] == 4 * len(late)
    steps = [(each["worker"], turn) for each in workers for turn in range(each["steps"])]
    assert len(steps) == len(report["pushes"])
    stream = SampleStream(NUM_TRAIN, config["seed"])
    firsts = [4 * (3 * turn + k) for k, turn in steps if (k, turn) not in late]
    assert len(firsts) == NUM_TRAIN // 4
    applied = {i for first in firsts for i in stream.indices(first, 4).tolist()}
    assert result["distinct_samples"] == len(applied)


def late_steps(pushes):
    """Worker and number of each push of an older version."""
    pushed, late = Counter(), []
    for worker, staleness in pushes:
        late += [(worker, pushed[worker])] if staleness else []
        pushed[worker] += 1
    return late


STALE = server(0, [(0, 0), (1, 1)])
OTHER = {"weights_digest": "other"}
HELD = server(0, [(0, 0), (1, 1)], held=1)
FRESH = server(0, [(0, 0), (1, 0)])


@pytest.mark.parametrize(
    ("claim", "servers", "second", "certificate"),
    [
        ("synchronous", (), {}, "synchronous"),
        ("synchronous", (), OTHER, "not synchronous: workers ended with other weights"),
        ("synchronous", (FRESH,), OTHER, "synchronous"),
        ("synchronous", (STALE,), {}, "not synchronous: stale pushes were applied"),
        ("synchronous", (STALE | {"dropped": 1},), {}, "synchronous"),
        ("asynchronous", (STALE,), OTHER, "asynchronous: stale pushes seen"),
        ("asynchronous", (FRESH,), {}, "not asynchronous: no push was stale"),
        ("asynchronous", (HELD,), {}, "not asynchronous: workers waited for another's step"),
        ("partly asynchronous", (HELD,), {}, "partly asynchronous: stale pushes seen"),
        ("partly asynchronous", (FRESH,), {}, "not partly asynchronous: no push was stale"),
        ("partly asynchronous", (STALE,), {}, "partly asynchronous: stale pushes seen"),
        ("equal at the end", (), {}, "all ended equal"),
        ("equal at the end", (), OTHER, "not synchronous: workers ended with other weights"),
        ("apart", (), OTHER, "none: workers hold weights of their own"),
    ],
)
def test_what_a_run_may_be_called(claim, servers, second, certificate):
    found = Findings(CONFIG, [worker(0, claim=claim), worker(1, **second)], list(servers))
    result = found.result()
    assert result["certificate"] == certificate
    failed = certificate.startswith("not ")
    assert (result["status"], result["reason"]) == (
        ("failed", certificate) if failed else ("finished", "")
    )


def test_one_worker_is_neither_synchronous_nor_asynchronous():
    for servers in ([], [STALE]):
        found = Findings(CONFIG, [worker(0)], servers)
        assert found.result()["certificate"] == "one worker"


@pytest.mark.parametrize(
    ("servers", "first", "reason"),
    [
        ((), {"scores": [scored(16, loss=math.nan)]}, "the validation loss is not finite"),
        ((), {"scores": [scored(16, loss=math.inf)]}, "the validation loss is not finite"),
        ((), {"diverged": True}, "weights are no longer finite"),
        ((server(0, [(0, 0)], diverged=True),), {}, "weights are no longer finite"),
        (
            (),
            {"scores": [scored(16, at_chance=True, top1=0.1)]},
            "accuracy at chance: top-1 is 0.100",
        ),
    ],
)
def test_a_run_that_diverged_says_why_and_can_be_written(servers, first, reason):
    result = findings(*servers, first=first).result()
    assert (result["status"], result["reason"]) == ("diverged", reason)
    json.dumps(result, allow_nan=False)


def test_a_bad_beginning_is_no_divergence():
    result = findings(second={"scores": [scored(8, at_chance=True)]}).result()
    assert result["status"] == "finished"
