"""Points side by side: each in a process that takes no other down with it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from omegaconf import OmegaConf

from paceline.study.point_processes import Killed, processes_kept, run_points
from tests.command_line import results, run
from tests.ends import all_end
from tests.small_study import write_small_study

KILLED = Killed("killed by SIGKILL")


def job(cfg):
    """Returns its number, unless it is to be killed or to leave."""
    if cfg.how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if cfg.how == "left":
        sys.exit(2)
    if cfg.how == "long":
        time.sleep(60)
    return cfg.number


def whoami(cfg):
    return os.getpid()


class SlowToArrive:
    """A task that each process needs two seconds to take."""

    def __call__(self, cfg):
        return job(cfg)

    def __reduce__(self):
        return _arrived, ()


def _arrived():
    time.sleep(2)
    return SlowToArrive()


def jobs(*hows):
    made = [{"number": number, "how": how} for number, how in enumerate(hows)]
    return [OmegaConf.create(each) for each in made]


def test_a_killed_process_costs_its_own_point_alone():
    ended = run_points(job, jobs("ends", "killed", "ends", "killed", "ends"), 2)
    assert ended == [0, KILLED, 2, KILLED, 4]
    with pytest.raises(SystemExit) as left:  # a wrong setting ends all
        run_points(job, jobs("left", "ends"), 1)
    assert left.value.code == 2


def test_processes_are_kept_for_the_next_points():
    with processes_kept():
        first = run_points(whoami, jobs("ends", "ends", "ends"), 1)
        again = run_points(whoami, jobs("ends", "ends"), 2)
        assert len(set(first)) == 1
        assert len({*first, *again}) <= 2
        assert run_points(job, jobs("killed", "ends"), 2) == [KILLED, 1]
    all_end([psutil.Process(pid) for pid in {*first, *again} if psutil.pid_exists(pid)])
    assert set(run_points(whoami, jobs("ends"), 1)).isdisjoint({*first, *again})


def test_a_process_that_starts_does_not_outlive_its_sweep():
    sweep = multiprocessing.get_context("spawn").Process(
        target=run_points, args=(SlowToArrive(), jobs("long"), 1)
    )
    sweep.start()
    known = psutil.Process(sweep.pid)
    while not (started := [each for each in known.children() if _is_point(each, known)]):
        time.sleep(0.01)
    time.sleep(0.5)  # so that its point has been sent; sooner, it would end without one
    sweep.kill()
    all_end(started)


def _is_point(process, sweep):
    words = process.cmdline()
    return "spawn_main" in str(words) and words != sweep.cmdline()  # forked, and not yet itself


@pytest.mark.parametrize("launcher", ["basic", pytest.param("joblib", marks=pytest.mark.slow)])
def test_points_run_by_another_launcher_of_hydra(launcher, root):
    """Each trains once, in whatever process, and is not asked for again."""
    write_small_study(root, launcher, {"seed": "0,1"}, cluster="virtual", batch_size=10)
    command = "train", "-m", f"experiments={launcher}", f"hydra/launcher={launcher}"
    if launcher == "basic":
        code, lines, _ = run(root, *command)
        assert code == 0
    else:
        program = [sys.executable, "-m", "paceline"]  # at whose end joblib lets its processes go
        ran = subprocess.run(
            [*program, *command], cwd=root, capture_output=True, text=True, check=True
        )
        lines = ran.stdout.splitlines()
    found = results(root, launcher)
    assert sorted((each["seed"], each["status"]) for each in found) == [
        (0, "finished"),
        (1, "finished"),
    ]
    again, first = run(root, "sweep", launcher), lines.index(f"{launcher}: 2 points: 2 finished")
    assert again[1] == lines[first : first + len(again[1])]
