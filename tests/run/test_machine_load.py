"""What else happens on the machine of a run is told: other programs, and a lack of memory."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.cluster.supervisor import ProcessFailure
from paceline.run import machine_load
from paceline.run.machine_load import MachineLoad, memory_kills
from paceline.run.run_point import _run

SPINS = "import time\nwhile time.process_time() < {}: pass"


class Machine:
    """Two cores and a process tree whose clocks a test sets [seconds]."""

    def __init__(self, monkeypatch):
        self.seconds, self.cores, self.run = 0.0, [0.0, 0.0], 0.0
        monkeypatch.setattr(machine_load, "num_cores", lambda: 2)
        monkeypatch.setattr(machine_load.os, "sched_getaffinity", lambda _: {0, 1})
        monkeypatch.setattr(machine_load.time, "monotonic", lambda: self.seconds)
        monkeypatch.setattr(machine_load.psutil, "cpu_times", self.cpu_times)
        monkeypatch.setattr(machine_load.psutil, "Process", lambda: self)

    def cpu_times(self, percpu=False):
        if not percpu:
            return self.run, 0.0, 0.0, 0.0
        idle = {"idle": 7.0 * self.seconds, "guest": 3.0 * self.seconds}
        return [SimpleNamespace(_asdict=lambda s=s: {"user": s, **idle}) for s in self.cores]

    def children(self, recursive):
        return []


@pytest.mark.parametrize(
    ("cores", "run", "wanted", "expected"),
    [
        ([10, 0], 10, 1, 0.0),
        ([10, 5], 10, 1, 0.5),
        ([10, 10], 10, 2, 0.5),
        ([10, 10], 10, 8, 0.5),  # it wants more cores than there are
        ([10, 10], 21, 2, 0.0),  # of a tick that is counted later
    ],
)
def test_what_the_run_did_not_spend_is_the_load_of_others(
    cores, run, wanted, expected, monkeypatch
):
    machine = Machine(monkeypatch)
    machine.cores, machine.run = [100.0, 200.0], 50.0
    load = MachineLoad()
    machine.seconds, machine.run = 10.0, 50.0 + run
    machine.cores = [100.0 + cores[0], 200.0 + cores[1]]
    assert load.of_others(wanted) == pytest.approx(expected)


@pytest.mark.parametrize("waits", [True, False])
def test_a_process_of_the_run_is_no_other_program(waits):
    """Neither while it runs nor after its end."""
    before = machine_load._usage().of_run
    code = SPINS.format(0.4) + ("" if waits else "\ninput()")
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        if waits:
            process.communicate()
        else:
            while machine_load._usage().of_run < before + 0.3:
                pass
    assert machine_load._usage().of_run - before >= 0.3


@pytest.mark.parametrize("group", ["", "user.slice/x.scope"])
@pytest.mark.parametrize("kills", [0, 2])
def test_a_failure_names_memory_if_the_kernel_killed_for_it(group, kills, tmp_path, monkeypatch):
    """By the counter of the control group, which other processes share."""

    def write(number):
        events.write_text(f"low 0\noom 9\noom_kill {number}\noom_group_kill 7\n")

    def run(_):
        write(3 + kills)
        raise ProcessFailure("worker 1: killed by SIGKILL", environment=True)

    events = tmp_path / group / "memory.events"
    events.parent.mkdir(parents=True, exist_ok=True)
    write(3)
    files = {Path("/proc/self/cgroup"): f"1:name=systemd:/init\n0::/{group}\n"}
    read = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda path: files.get(path) or read(path))
    monkeypatch.setattr(machine_load, "_CGROUPS", tmp_path)
    point = SimpleNamespace(cluster=SimpleNamespace(run=run))
    with pytest.raises(ProcessFailure, match=r"^worker 1: killed by SIGKILL") as caught:
        _run(point, tmp_path, None, again=False)
    assert ("memory ran out" in str(caught.value)) == (kills > 0)


def test_without_control_groups_the_counter_is_that_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(machine_load, "_CGROUPS", tmp_path)
    lines = Path("/proc/vmstat").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("oom_kill ")]
    assert memory_kills() == int(line.split()[1])
