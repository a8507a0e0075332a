"""What the machine refuses: one line says so, and a point that it made fail is run again."""

import errno
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from paceline.cluster import processes
from paceline.cluster.supervisor import ProcessFailure
from paceline.errors import SettingError, said_of_environment
from paceline.exchange.liveness import Stillness
from paceline.exchange.process_group import cluster_interface
from paceline.record.report_files import replaced
from paceline.run.run_point import _about, _Moment
from tests.command_line import results, run, start
from tests.ends import wait_until
from tests.small_study import write_small_study
from tests.tiny import point_of, tiny_point

PACELINE = str(Path(sys.executable).with_name("paceline"))


def under(root, shell):
    """(exit code, lines of stdout and stderr) of a shell command in `root`, as root of the host."""
    ended = subprocess.run(["bash", "-c", shell], cwd=root, capture_output=True, text=True)
    return ended.returncode, ended.stdout.splitlines(), ended.stderr.splitlines()


def test_errors_of_the_machine_are_told_from_others_by_their_number():
    for number in (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE, errno.EADDRNOTAVAIL):
        said = said_of_environment(OSError(number, os.strerror(number), "a/b"))
        assert said == f"a/b: {os.strerror(number)}"
    assert said_of_environment(MemoryError()) == "there is not enough memory"
    for other in (ValueError("x"), OSError(errno.ENOENT, "x"), RuntimeError("no space left")):
        assert said_of_environment(other) is None


def test_an_address_that_no_interface_has_or_one_that_is_down_is_an_error_of_the_machine(
    monkeypatch,
):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setattr(psutil, "net_if_addrs", dict)
    with pytest.raises(OSError, match=r"no interface has the address 127\.0\.0\.1") as error:
        cluster_interface()
    assert said_of_environment(error.value)
    addresses = {"lo": [SimpleNamespace(address="127.0.0.1")]}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: addresses)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"lo": SimpleNamespace(isup=False)})
    with pytest.raises(OSError, match="the interface lo is down") as error:
        cluster_interface()
    assert said_of_environment(error.value)


def test_too_few_open_files_are_known_before_a_process_starts(monkeypatch):
    monkeypatch.setattr(processes.resource, "getrlimit", lambda _: (64, 64))
    processes.require_files(4)
    with pytest.raises(ProcessFailure, match=r"16 processes need \d+ open files") as failure:
        processes.require_files(16)
    assert failure.value.environment


def test_a_temporary_folder_that_nobody_can_write_is_named(monkeypatch):
    """A disk that is full is not the setting's fault."""
    refusals = [
        OSError(errno.ENOSPC, "No space left on device"),
        FileNotFoundError(errno.ENOENT, "No usable temporary directory found"),
        OSError("AF_UNIX path too long"),
    ]

    def refuse():
        raise refusals.pop(0)

    monkeypatch.setattr(processes.forkserver, "ensure_running", refuse)
    with pytest.raises(OSError, match="No space left"):
        processes.preload()
    for _ in range(2):
        with pytest.raises(SettingError, match=r"^TMPDIR: "):
            processes.preload()


def test_files_of_a_report_are_replaced_all_or_none(tmp_path):
    def write(text, last):
        with replaced(tmp_path) as new:
            (new / "tables").mkdir()
            (new / "a.csv").write_text(text)
            (new / f"tables/{text}.csv").write_text(text)
            last()

    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def files():
        found = [path for path in tmp_path.rglob("*") if path.is_file()]
        return {str(path.relative_to(tmp_path)): path.read_text() for path in found}

    write("one", lambda: None)
    before = files()
    assert before == {"a.csv": "one", "tables/one.csv": "one"}
    with pytest.raises(SettingError, match=f"cannot write {tmp_path}: No space left"):
        write("two", full)
    assert files() == before
    write("two", lambda: None)
    assert files() == {
        "a.csv": "two",
        "tables/two.csv": "two",
    }  # what was not written again is gone


def test_seconds_in_which_a_process_stood_still_are_those_without_signs_and_without_computing():
    """(seconds that passed, seconds that it computed) until each look, and what was missed."""
    for looks, missed in (
        ([(1.0, 0.1), (1.1, 1.0), (2.9, 0.0)], 0.0),  # signs of life, the last on a busy machine
        ([(1.0, 0.1), (61.0, 0.5), (1.0, 0.2)], 59.5),  # stopped for a minute
        ([(61.0, 60.0)], 0.0),  # held up by work of its own
        ([(11.0, 0.0), (21.0, 0.0)], 30.0),
    ):
        passed, computed = (itertools.accumulate((0.0, *each)) for each in zip(*looks, strict=True))
        still = Stillness(passed.__next__, computed.__next__)
        for _ in looks:
            still.look()
        assert still.seconds == pytest.approx(missed)


def test_a_clock_that_was_set_back_gives_no_negative_seconds():
    """Two days back in a run of five seconds; the time of a launch is then unknown."""
    point, now = point_of(tiny_point("sync_allreduce", 2, 8)), time.time()
    for set_by, launch in ((0.0, 2.0), (172800.0, None), (-172800.0, None)):
        started = _Moment(now - 5 + set_by, time.monotonic() - 5)
        about = _about(point, started, now - 3)
        assert about["wall_seconds"] == pytest.approx(5, abs=1)
        assert about["launch_seconds"] == (launch and pytest.approx(launch))


@pytest.mark.slow
def test_a_worker_that_stood_still_is_on_its_record(root):
    """SIGSTOP for six seconds of one of two workers."""
    write_small_study(root, "still", {"seed": "0"}, training={"epochs": 60})
    with start(root, "sweep", "still", stdout=subprocess.DEVNULL) as sweep:
        wait_until(lambda: list((root / "runs/still").glob(".*/progress.csv")))
        family = psutil.Process(sweep.pid).children(recursive=True)
        workers = [process for process in family if process.ppid() != sweep.pid]
        worker = max(workers, key=lambda process: sum(process.cpu_times()[:2]))
        worker.suspend()
        time.sleep(6)
        worker.resume()
        assert sweep.wait(200) == 0
    (result,) = results(root, "still")
    assert result["status"] == "finished"
    assert 3 < result["stopped_seconds"] < 9


@pytest.mark.slow
def test_points_that_the_machine_made_fail_are_run_again(root):
    """No loopback address, loopback that is down, and too few open files: one line each."""
    sweep = f"{PACELINE} sweep machine"
    axes = {"scheme": "sync_allreduce,async_parameter_server"}
    write_small_study(root, "machine", axes, workers=2)
    lo = "ip address add 127.0.0.1/8 dev lo"
    kinds = {
        "no interface has the address": f"unshare -n {sweep}",
        "the interface lo is down": f"unshare -n sh -c '{lo}; {sweep}'",
        "open files, and 30 are allowed": f"ulimit -n 30; {sweep}",
    }
    for why, command in kinds.items():
        code, _, errors = under(root, command)
        assert code == 1, errors
        (line,) = [line for line in errors if not line.startswith("progress")]
        assert line.startswith("paceline: 2 of 2 points failed for environment reasons")
        assert why in line
        assert [result["environment"] for result in results(root, "machine")] == [True, True]
    code, _, errors = run(root, "sweep", "machine")
    assert (code, errors) == (0, [])
    assert [result["status"] for result in results(root, "machine")] == ["finished"] * 2


@pytest.mark.slow
def test_what_cannot_be_written_or_read_is_said_in_one_line_and_leaves_no_half_table(root):
    write_small_study(root, "disk", {"seed": "0,1"}, cluster="virtual")
    assert run(root, "sweep", "disk")[0] == run(root, "report", "disk")[0] == 0
    reports = root / "reports/disk"

    def files():
        found = (path for path in reports.rglob("*") if path.is_file())
        return {str(path.relative_to(reports)): path.read_bytes() for path in found}

    before, disks = files(), {}
    full = "mount -t tmpfs -o size=600k tmpfs reports && cp -r kept reports/disk"
    full += " && { cat /dev/zero > reports/fill; }"
    disks["full"] = f"{full} 2>/dev/null; "
    disks["read-only"] = "mount --bind kept reports/disk; mount -o remount,ro,bind reports/disk; "
    powerless = "setpriv --bounding-set=-dac_override,-dac_read_search"
    subprocess.run(["cp", "-r", "reports/disk", "kept"], cwd=root, check=True)
    for name, setting_up in disks.items():
        for command in ("sweep disk", "report disk"):
            there = "code=$?; cmp -s reports/disk/runs.csv kept/runs.csv || echo changed >&2"
            shell = f"{setting_up} {PACELINE} {command}; {there}; exit $code"
            code, _, errors = under(root, f"unshare -m sh -c '{shell}'")
            assert code in (1, 2), (name, command)
            (line,) = errors
            assert "cannot write" in line, (name, command)
    assert files() == before
    for hidden in ("reports/disk", "reports/disk/runs.csv", "runs/disk"):
        mode = (root / hidden).stat().st_mode
        (root / hidden).chmod(0)
        try:
            for command in ("show disk", "show", "report disk", "report", "sweep disk"):
                code, _, errors = under(root, f"{powerless} {PACELINE} {command}")
                assert code in (0, 1, 2), (hidden, command)
                assert len(errors) <= 1, (hidden, command)
        finally:
            (root / hidden).chmod(mode)
