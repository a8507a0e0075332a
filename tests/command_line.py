"""The command line in a repository of its own, as a user types it."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from multiprocessing import forkserver
from pathlib import Path

import pytest

from paceline import cli
from paceline.cluster.processes import preload
from paceline.record.reading import read_result
from paceline.record.record import records_in
from paceline.study.progress import PREFIX


def start(root, *arguments, **options):
    script = Path(sys.executable).with_name("paceline")
    return subprocess.Popen([script, *arguments], cwd=root, **options)


def run_anew(root, *arguments):
    """As `run`, by the installed script: two interpreters import torch, for seconds."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        # no pipes: a forkserver in the middle of its imports would hold them open for seconds
        with start(root, *arguments, stdout=out, stderr=err) as process:
            code = process.wait()
        return code, _lines(out), _errors(err)


def run(root, *arguments, patched=()):
    """(exit code, lines of stdout, lines of stderr but progress), in a process that the forkserver
    of these tests forks: torch and Lightning are imported already, here and in the command's
    processes.
    `patched`: pairs of a dotted name and what it is set to.
    """
    preload()
    with tempfile.NamedTemporaryFile("w+") as out, tempfile.NamedTemporaryFile("w+") as err:
        given = (root, arguments, patched, out.name, err.name)
        process = multiprocessing.get_context("forkserver").Process(target=_command, args=given)
        process.start()
        process.join()
        return process.exitcode, _lines(out), _errors(err)


def _command(root, arguments, patched, out, err):
    for stream, path in ((1, out), (2, err)):
        with Path(path).open("a") as file:
            os.dup2(file.fileno(), stream)
    keep_forkserver()
    for name, value in patched:
        pytest.MonkeyPatch().setattr(name, value)
    os.chdir(root)
    sys.argv = ["paceline", *arguments]
    cli.main()


def keep_forkserver():
    """In a process that it forked, that of the tests goes on: Python 3.11 starts another, whatever
    its documentation says.
    """
    forkserver.ensure_running = forkserver._forkserver.ensure_running = lambda: None


def _lines(file):
    file.seek(0)
    return file.read().splitlines()


def _errors(file):
    return [line for line in _lines(file) if not line.startswith(PREFIX)]


def results(root, study):
    return [read_result(record) for record in records_in(root / "runs" / study)]
