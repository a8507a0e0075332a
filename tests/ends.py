"""Waits for what other processes do, above all for their ends; pytest's timeout ends a wait."""

import time

import psutil


def is_alive(process):
    """A zombie is none: its new parent may never ask for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition):
    """Wait for a condition, and return what it found."""
    while not (found := condition()):
        time.sleep(0.05)
    return found


def all_end(processes):
    """Wait until all of `processes` have ended."""
    wait_until(lambda: not any(is_alive(process) for process in processes))
