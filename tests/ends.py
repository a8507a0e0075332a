"""Waits for what other processes do, above all for their ends."""

import time

import psutil


def is_alive(process):
    """A zombie is none: its new parent may never ask for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def all_end(processes, seconds):
    """Wait until all of `processes` have ended; those that live on are named."""
    deadline = time.monotonic() + seconds
    while alive := [process for process in processes if is_alive(process)]:
        assert time.monotonic() < deadline, [process.cmdline() for process in alive]
        time.sleep(0.05)
