"""Processes of jobs on this machine, found by what they inherited or by where they write."""

from pathlib import Path

import psutil


def writes_to(log):
    """Return the process whose standard output is the file, None if there is none."""
    for process in psutil.process_iter():
        try:
            if Path(f"/proc/{process.pid}/fd/1").readlink() == log:
                return process
        except OSError:
            continue
    return None


def in_jobs(conf):
    """Return the processes in jobs of the Slurm with this slurm.conf."""
    return [process for process in psutil.process_iter() if _environment(process, conf)]


def head_of(conf, job):
    """Return the first process of a job."""
    for process in in_jobs(conf):
        line = process.cmdline()
        is_head = "submitit.core._submit" in line and "srun" not in line[0]
        if is_head and _id(_environment(process, conf)) == job:
            return process
    return None


def _environment(process, conf):
    """Return the environment of a process in a job, {} for others."""
    try:
        environment = process.environ()
        if process.status() == psutil.STATUS_ZOMBIE:
            return {}
    except psutil.Error:
        return {}
    ours = environment.get("SLURM_CONF") == conf and "SLURM_JOB_ID" in environment
    return environment if ours else {}


def _id(environment):
    number = environment.get("SLURM_ARRAY_JOB_ID")
    return (
        f"{number}_{environment['SLURM_ARRAY_TASK_ID']}" if number else environment["SLURM_JOB_ID"]
    )
