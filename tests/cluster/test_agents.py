"""Agents of nodes: several on this machine, which share nothing with the head but the project."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch

from paceline.cluster import node_agents
from paceline.cluster.agent_wire import HEAD, KEY, head
from paceline.cluster.agents import AgentsCluster
from paceline.cluster.node_agent import serve
from paceline.cluster.node_agents import NodeAgents
from paceline.cluster.processes import preload
from paceline.cluster.supervisor import LostWorker, ProcessFailure, Task
from paceline.errors import SettingError
from tests.command_line import keep_forkserver, run
from tests.tiny import REPOSITORY, run_tiny, tiny_point

TEST_KEY = "00112233445566778899aabbccddeeff"
AGENT = """
import sys
from paceline.cluster.node_agent import serve
if __name__ == "__main__":
    host, port, key = sys.argv[1:]
    serve((host, int(port)), bytes.fromhex(key), "", 20)
"""


def fork_agent(port):
    """An agent whose processes the forkserver of these tests forks, as those of the head."""
    preload()
    process = multiprocessing.get_context("forkserver").Process(target=serve_here, args=(port,))
    process.start()
    return process


def serve_here(port):
    keep_forkserver()
    os.chdir(REPOSITORY)
    serve(("127.0.0.1", port), bytes.fromhex(TEST_KEY), "", 20)


def start_agent(port):
    """An agent with an interpreter and a forkserver of its own, which import torch for seconds."""
    command = [sys.executable, "-c", AGENT, "127.0.0.1", str(port), TEST_KEY]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def nodes():
    """Head and two agents; after a test that ends an agent, another one."""
    agents = NodeAgents(("127.0.0.1", 0), bytes.fromhex(TEST_KEY))
    processes = [fork_agent(agents.address[1]) for _ in range(2)]
    agents.meet(2, 100)
    yield agents, processes
    agents.close()
    for process in processes:
        ended(process)  # a failure if an agent outlives its head


def ended(process):
    if isinstance(process, subprocess.Popen):
        process.wait(100)
        process.stderr.close()
    else:
        process.join(100)
        assert process.exitcode is not None
        process.close()


def cluster(workers_per_node=None, server_placement="beside_workers", nodes=2):
    settings = tiny_point("sync_allreduce", 2, 4, "agents")["cluster"]
    settings = {name: value for name, value in settings.items() if name != "_target_"}
    own = {"workers_per_node": workers_per_node, "server_placement": server_placement}
    return AgentsCluster(**{**settings, **own, "nodes": nodes})


@pytest.mark.parametrize(
    ("training", "servers", "settings", "places"),
    [
        (4, 0, {}, [0, 0, 1, 1]),
        (3, 1, {}, [0, 0, 1, 0]),
        (1, 0, {}, [0]),
        (4, 3, {}, [0, 0, 1, 1, 0, 1, 0]),
        (2, 1, {"server_placement": "own_nodes"}, [0, 0, 1]),
        (2, 1, {"server_placement": "own_nodes", "nodes": 3}, [0, 1, 2]),
        (3, 0, {"workers_per_node": 2}, [0, 0, 1]),
        (2, 0, {"workers_per_node": 2}, [0, 0]),
    ],
)
def test_workers_fill_nodes_and_servers_are_beside_them_or_apart(
    training, servers, settings, places
):
    assert cluster(**settings).places(training, servers) == places


@pytest.mark.parametrize(
    ("training", "servers", "settings", "message"),
    [
        (5, 0, {"workers_per_node": 2}, "cluster.nodes: 3 nodes of workers are needed, not 2"),
        (
            2,
            2,
            {"server_placement": "own_nodes"},
            "cluster.nodes: 1 nodes of workers and 2 of servers are needed, not 2",
        ),
    ],
)
def test_too_few_nodes_are_refused_before_anything_starts(training, servers, settings, message):
    with pytest.raises(SettingError, match=f"^{message}$"):
        cluster(**settings).places(training, servers)


def run_on(nodes, task, places):
    agents, _ = nodes
    agents.meet(2, 100)
    return agents.run(task, places)


def test_results_are_in_the_order_of_ranks_and_output_is_in_the_log(nodes, tmp_path):
    """Each process knows its rank in the run, and its rank on its node."""
    task = Task("tests.cluster.counting:tell_ranks", (), 3, 1, tmp_path / "log")
    told = run_on(nodes, task, [0, 0, 1, 1])
    assert told == [
        ("0", "0", "2", "0"),
        ("1", "1", "2", "0"),
        ("2", "0", "2", "1"),
        ("3", "1", "2", "1"),
    ]
    logs = {path.name: path.read_text() for path in (tmp_path / "log").iterdir()}
    assert logs == {
        "worker_0.log": "out 0\n",
        "worker_1.log": "out 1\n",
        "worker_2.log": "out 2\n",
        "server_0.log": "out 3\n",
    }


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("exit", "worker 1: SystemExit: 3"),
        ("vanish", "worker 1: ended with exit code 7 and no result"),
        ("peer", "worker 1: RuntimeError: the cause"),
    ],
)
def test_the_first_failure_is_told_and_the_agents_serve_on(nodes, how, reason, tmp_path):
    task = Task("tests.cluster.counting:fail", (how,), 2, 0, tmp_path / "log")
    with pytest.raises(ProcessFailure, match=f"^{reason}"):
        run_on(nodes, task, [0, 1])
    again = Task("tests.cluster.counting:count", (2,), 2, 0, tmp_path / "again")
    assert run_on(nodes, again, [0, 1]) == [2, 2]


def test_an_end_never_overtakes_its_order(nodes, tmp_path, monkeypatch):
    """However slow the head's threads are to hear; and where no order was sent, no end is."""
    hear = node_agents._Relay._hear
    monkeypatch.setattr(node_agents._Relay, "_hear", lambda each: (time.sleep(0.5), hear(each)))
    task = Task("tests.cluster.counting:count", (2,), 2, 0, tmp_path / "log")
    with monkeypatch.context() as patched:
        patched.setattr(node_agents.Supervisor, "until_the_end", fail_at_once)
        with pytest.raises(ProcessFailure, match="at once"):
            run_on(nodes, task, [0, 1])
        patched.setattr(node_agents._Relay, "begin", fail_at_once)
        with pytest.raises(ProcessFailure, match="at once"):
            run_on(nodes, task, [0, 1])
    assert run_on(nodes, task, [0, 1]) == [2, 2]


def fail_at_once(_):
    raise ProcessFailure("at once")


def test_other_code_is_refused(nodes, tmp_path):
    task = Task("tests.cluster.counting:count", (2,), 2, 0, tmp_path / "log", code="other")
    with pytest.raises(SettingError, match=r"^cluster: the code on .* is , and other where"):
        run_on(nodes, task, [0, 1])


def test_a_project_that_nodes_do_not_share_is_refused(nodes, tmp_path):
    """A folder of the head alone; here one that the agents' own working directory has not."""
    os.chdir(tmp_path)
    try:
        task = Task("tests.cluster.counting:count", (2,), 2, 0, Path("of_the_head/log"))
        with pytest.raises(
            SettingError, match=r"^cluster: .* does not see of_the_head: nodes must"
        ):
            run_on(nodes, task, [0, 1])
    finally:
        os.chdir(REPOSITORY)


@pytest.fixture
def by_settings(nodes, monkeypatch):
    """The agents as `cluster=agents` finds them."""
    monkeypatch.setattr("paceline.cluster.agents._listening", lambda address, key: nodes[0])
    monkeypatch.setenv(HEAD, "127.0.0.1:1")
    monkeypatch.setenv(KEY, TEST_KEY)


@pytest.mark.usefixtures("by_settings")
@pytest.mark.parametrize("scheme", ["sync_allreduce", "local_sgd", "sync_parameter_server"])
def test_two_nodes_train_what_one_machine_trains(scheme, tmp_path):
    """To the last bit, since these schemes do not depend on time."""
    _, here = run_tiny(tiny_point(scheme, 2, 4), tmp_path / "here")
    config = tiny_point(scheme, 2, 4, "agents", cluster__nodes=2)
    seen, there = run_tiny(config, tmp_path / "there")
    assert len(seen.workers) == 2
    assert all(torch.equal(here[name], there[name]) for name in here)


@pytest.mark.usefixtures("by_settings")
def test_asynchronous_servers_go_on_without_a_worker_that_was_killed(tmp_path):
    config = tiny_point(
        "async_parameter_server",
        2,
        4,
        "agents",
        cluster__nodes=2,
        model___target_="tests.classifiers.FailingClassifier",
        model__killed=True,
    )
    seen, _ = run_tiny(config, tmp_path)
    (lost,) = seen.lost
    assert isinstance(lost, LostWorker)
    assert (lost.worker, lost.reason) == (1, "killed by SIGKILL")


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_the_end_of_an_agent_ends_its_processes_and_the_run(nodes, sent, tmp_path):
    """Another agent takes its place in the next run."""
    agents, processes = nodes
    task = Task("tests.cluster.counting:tell_and_wait", (), 2, 0, tmp_path / "log")
    began = time.monotonic()
    killer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, sys, time, pathlib\n"
            "log = pathlib.Path(sys.argv[1])\n"
            "while not all((log / f'worker_{i}.log').is_file() and "
            "(log / f'worker_{i}.log').read_text().endswith('\\n') for i in (0, 1)):\n"
            "    time.sleep(0.05)\n"
            "os.kill(int(sys.argv[2]), int(sys.argv[3]))",
            str(tmp_path / "log"),
            str(processes[0].pid),
            str(int(sent)),
        ]
    )
    with pytest.raises(ProcessFailure, match=r"^worker \d: its node .* is gone$"):
        run_on(nodes, task, [0, 1])
    assert time.monotonic() - began < 30
    killer.wait()
    pids = [int((tmp_path / f"log/worker_{rank}.log").read_text()) for rank in (0, 1)]
    while any(map(is_alive, pids)):  # until the test's own limit
        time.sleep(0.05)
    ended(processes[0])
    processes[0] = start_agent(agents.address[1])
    again = Task("tests.cluster.counting:count", (2,), 2, 0, tmp_path / "again")
    assert run_on(nodes, again, [0, 1]) == [2, 2]


def is_alive(pid):
    """A zombie is none: here its new parent may never ask for it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_agent_with_another_key_is_not_admitted_and_says_so():
    agents = NodeAgents(("127.0.0.1", 0), bytes.fromhex(TEST_KEY))
    with ThreadPoolExecutor() as pool:
        stranger = pool.submit(serve, agents.address, bytes(16), "", 60)
        with pytest.raises(SettingError, match=r"^cluster.nodes: 0 of 1 agents came to .* in 4 s$"):
            agents.meet(1, 4)
        where = f"127.0.0.1:{agents.address[1]}"
        with pytest.raises(SettingError, match=f"^{KEY}: the head at {where} has another key$"):
            stranger.result()
    agents.close()


def test_who_says_nothing_keeps_no_agent_out():
    agents = NodeAgents(("127.0.0.1", 0), bytes.fromhex(TEST_KEY))
    with socket.create_connection(agents.address), ThreadPoolExecutor() as pool:
        agent = pool.submit(serve, agents.address, bytes.fromhex(TEST_KEY), "", 60)
        agents.meet(1, 100)
        agents.close()
        agent.result()


def test_an_agent_without_a_head_gives_up():
    words = ("agent", "127.0.0.1:9", "--patience", "0.1")
    environment = ("os.environ", {**os.environ, KEY: TEST_KEY})
    code, _, errors = run(REPOSITORY, *words, patched=[environment])
    assert code == 2
    assert errors[0].startswith(f"paceline: {HEAD}: nothing answers at 127.0.0.1:9 for 0.1 s")


@pytest.mark.parametrize("given", ["", "host", "host:port", ":1", "host:0", "host:70000"])
def test_an_address_that_does_not_fit_is_named(given, monkeypatch):
    monkeypatch.setenv(HEAD, given)
    with pytest.raises(SettingError, match=rf"^{HEAD}: HOST:PORT is needed"):
        head()


def test_an_address_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SettingError, match=rf"^{HEAD}: cannot listen on 127.0.0.1:{port}: Add"):
            NodeAgents(("127.0.0.1", port), bytes.fromhex(TEST_KEY))
