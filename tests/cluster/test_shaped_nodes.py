"""Nodes on this machine: real network namespaces, and links of a given rate."""

import os
import subprocess
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from benchmarks.exchange_turns import Asked, measure_exchanges
from paceline.cluster import namespaces
from paceline.cluster.namespaces import shaped_network
from paceline.cluster.supervisor import Task
from paceline.errors import SettingError
from paceline.exchange.process_group import join, leave, this_node
from tests.launching import launch
from tests.tiny import point_of, run_tiny, tiny_point

BANDWIDTH = 1e6


@pytest.fixture(scope="module")
def permitted():
    try:
        with shaped_network(1, BANDWIDTH):
            pass
    except SettingError as error:
        pytest.skip(f"no network namespaces here: {error}")


def names(process=None):
    """The namespaces of a process, by default of this one."""
    return list(Path("/run/netns").glob(f"paceline-{process or os.getpid()}-*"))


def send(num_bytes):
    """Seconds in which rank 0 has the bytes of both others, and this process's node."""
    join(60, "cpu")
    vector = torch.zeros(num_bytes, dtype=torch.uint8)
    dist.barrier()
    began = time.monotonic()
    if dist.get_rank():
        dist.send(vector, 0)
    else:
        for sender in (1, 2):
            dist.recv(vector, sender)
    seconds = time.monotonic() - began
    leave()
    return seconds, this_node()


@pytest.mark.usefixtures("permitted")
def test_messages_of_two_nodes_share_what_the_third_takes_in(tmp_path):
    """No bucket lets more than its rate pass, but for its burst and one packet."""
    with shaped_network(3, BANDWIDTH) as network:
        found = launch(
            f"{send.__module__}:{send.__name__}",
            (200_000,),
            workers=3,
            servers=0,
            log_folder=tmp_path,
            address=network.address,
            namespaces=network.namespaces,
        )
    seconds, nodes = zip(*found, strict=True)
    assert seconds[0] > 0.95 * 2 * 200_000 / BANDWIDTH
    assert len(set(nodes)) == 3
    assert names() == []


@pytest.mark.usefixtures("permitted")
def test_collectives_use_both_directions_of_a_link_at_once():
    """One direction at a time would take twice as long; frames and filling take a tenth more.

    What else runs on the machine only adds to a turn: the least of five is that of the link.
    """
    length, link = 500_001, {"latency": 0, "bandwidth": 1e7}
    point = point_of(tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes", cluster__link=link))
    names = ("ring", "multicolor", "parameter_server")
    found = measure_exchanges(point.cluster, 2, [Asked(name, length) for name in names], 5)
    for name, exchanged in zip(names, found, strict=True):
        assert 0.9 < min(exchanged.seconds) / (4 * length / link["bandwidth"]) < 1.7, name


@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize("scheme", ["sync_allreduce", "sync_parameter_server"])
def test_training_between_nodes_equals_that_on_one_machine(scheme, tmp_path):
    found = []
    for cluster in ("local", "shaped_nodes"):
        folder = tmp_path / cluster
        folder.mkdir()
        seen, weights = run_tiny(tiny_point(scheme, 3, 4, cluster=cluster), folder)
        found.append((weights, [worker.bytes_sent for worker in seen.workers]))
    (weights, sent), (of_nodes, sent_between) = found
    for name, value in weights.items():  # pushes are added in the order of arrival
        torch.testing.assert_close(of_nodes[name], value, rtol=1e-12, atol=1e-12)
    assert sent == sent_between
    assert names() == []


@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize("scheme", ["async_parameter_server", "mixed", "gossip"])
@pytest.mark.slow
def test_messages_that_no_socket_holds_pass_between_nodes(scheme, tmp_path):
    """Ten megabytes, of which a server sends the first before it meets the workers."""
    sized = {
        "_target_": "paceline.timing.workload.SizedNetwork",
        "name": "sized",
        "num_bytes": 10_000_000,
        "num_statistics_bytes": 0,
    }
    settings = {"cluster": "shaped_nodes", "cluster__step_seconds": 0.01, "workload": sized}
    seen, _ = run_tiny(tiny_point(scheme, 4, 4, **settings), tmp_path)
    assert [worker.steps > 0 for worker in seen.workers] == [True] * 4


@pytest.mark.usefixtures("permitted")
@pytest.mark.parametrize(
    ("placement", "nodes"), [("own_nodes", [0, 0, 1, 2, 3]), ("beside_workers", [0, 0, 1, 0, 1])]
)
def test_workers_fill_nodes_and_servers_have_their_own_or_share(placement, nodes, tmp_path):
    point = point_of(
        tiny_point(
            "async_parameter_server",
            3,
            4,
            cluster="shaped_nodes",
            cluster__workers_per_node=2,
            cluster__server_placement=placement,
            scheme__servers=2,
        )
    )
    task = Task(f"{this_node.__module__}:{this_node.__name__}", (), 3, 2, tmp_path)
    found = point.cluster.run(task)
    assert [found.index(node) for node in found] == [nodes.index(node) for node in nodes]
    assert point.kind == "paced"


@pytest.mark.usefixtures("permitted")
def test_nodes_of_a_killed_process_are_removed_by_the_next(monkeypatch):
    ended = subprocess.Popen(["true"])
    ended.wait()
    monkeypatch.setattr(namespaces.os, "getpid", lambda: ended.pid)
    network = shaped_network(2, BANDWIDTH)
    network.__enter__()
    assert len(names(ended.pid)) == 2
    monkeypatch.undo()
    with shaped_network(1, BANDWIDTH):
        assert (len(names()), names(ended.pid)) == (1, [])
    assert names() == []


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"cluster__link": {"latency": 0.001, "bandwidth": 1e6}}, r"cluster\.link\.latency"),
        ({"cluster__link": {"latency": 0, "bandwidth": None}}, r"cluster\.link\.bandwidth"),
        (
            {"cluster__link": {"latency": 0, "bandwidth": 1e6, "unevenness": 0.5}},
            r"cluster\.link\.unevenness",
        ),
    ],
)
def test_what_cannot_be_emulated_is_refused(settings, setting, monkeypatch):
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 0)
    with pytest.raises(SettingError, match=f"^{setting}: "):
        point_of(tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes", **settings))


def test_without_the_right_or_the_programs_it_is_refused(monkeypatch):
    config = tiny_point("sync_allreduce", 2, 4, cluster="shaped_nodes")
    monkeypatch.setattr(namespaces.shutil, "which", lambda _: "/sbin/x")
    monkeypatch.setattr(namespaces.os, "geteuid", lambda: 1000)
    with pytest.raises(SettingError, match=r"^cluster: .* need root$"):
        point_of(config)
    monkeypatch.setattr(namespaces.shutil, "which", lambda _: None)
    with pytest.raises(SettingError, match=r"^cluster: there is no ip"):
        point_of(config)
