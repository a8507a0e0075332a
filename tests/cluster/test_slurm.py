"""What a point asks of Slurm, and that its key does not depend on it; without a Slurm."""

import pytest

from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.record.point import Point
from paceline.study.compose import composed
from tests.tiny import CONF

SYNC, ASYNC = "scheme=sync_allreduce", "scheme=async_parameter_server"


def point(*settings, cluster="slurm"):
    return Point.of(composed([f"cluster={cluster}", "data=synthetic", *settings], CONF.parent))


@pytest.mark.parametrize(
    ("settings", "nodes", "cpus", "gpus"),
    [
        ([SYNC, "workers=4"], 1, 4, None),
        ([SYNC, "workers=4", "cluster.workers_per_node=2"], 2, 2, None),
        ([SYNC, "workers=3", "cluster.workers_per_node=2"], 2, 2, None),
        ([ASYNC, "workers=4", "cluster.workers_per_node=2"], 2, 3, None),
        ([ASYNC, "workers=2", "cluster.server_placement=own_nodes"], 2, 2, None),
        ([SYNC, "workers=4", "cluster.workers_per_node=2", "cluster.accelerator=gpu"], 2, 2, 2),
        ([ASYNC, "workers=2", "cluster.threads_per_worker=2"], 1, 6, None),
    ],
)
def test_a_point_asks_for_the_nodes_that_it_needs(settings, nodes, cpus, gpus):
    asked = point(*settings)
    needs = asked.cluster.needs_of(*asked.num_processes)
    assert (needs["nodes"], needs["ntasks_per_node"]) == (nodes, 1)
    assert (needs["cpus_per_task"], needs.get("gpus_per_node")) == (cpus, gpus)


QUEUE = (
    "cluster.partition=long",
    "cluster.account=vision",
    "cluster.minutes=5",
    "cluster.memory_gb=1.5",
    "+cluster.arguments.qos=high",
    "cluster.points_per_job=3",
    "cluster.wait=false",
)


def test_the_queue_is_asked_for_what_is_set_and_no_key_tells_of_it():
    asked = point(*QUEUE)
    assert asked.cluster.needs_of(1, 0) == {
        "nodes": 1,
        "ntasks_per_node": 1,
        "cpus_per_task": 1,
        "partition": "long",
        "account": "vision",
        "mem": "1536M",
        "time": 15,
        "additional_parameters": {"requeue": True, "qos": "high"},
    }
    assert asked.config.key == point().config.key
    assert asked.config.key != point("cluster.workers_per_node=1").config.key


def test_a_virtual_point_in_the_queue_has_the_key_of_one_that_is_not():
    here = point(cluster="virtual")
    there = point("+cluster/queue=slurm", cluster="virtual")
    assert (here.cluster.submitted_to, there.config.key) == (None, here.config.key)
    assert there.cluster.needs_of(1, 0)["time"] == 60


def test_no_point_runs_outside_a_job(tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    task = Task("tests.cluster.counting:tell_ranks", (), 1, 0, tmp_path)
    with pytest.raises(SettingError, match=r"^cluster: its points run in jobs"):
        point().cluster.run(task)
