"""What the forkserver of tests has ready for all that it forks; and the process of a point, which
yields to nobody.

A paced worker beside a server gives way to everything on its machine: beside busy processes, as
tests may run, it would hardly run at all. Here it leaves a file that says so.
"""

import atexit
import functools
import gc
import importlib.metadata
import itertools
import os
from pathlib import Path

_collects = gc.isenabled()
gc.disable()  # while modules are imported, as they stay
importlib.metadata.entry_points = functools.cache(importlib.metadata.entry_points)
rule_links, process_group, training_process, *_ = map(
    importlib.import_module,
    (
        "paceline.clock.wall.rule_links",
        "paceline.exchange.process_group",
        "paceline.run.training_process",
        "paceline.clock.wall.rule_strategy",
        "paceline.command.sweep_command",
        "paceline.run.run_point",
        "paceline.study.hydra_entry",
        "tests.tiny",
        "pytest",  # as processes call functions of test files
    ),
)
# the packages that have plugins: seconds, once
for _group in ("pytorch_lightning.callbacks_factory", "torch.distributed.backends"):
    importlib.metadata.entry_points(group=_group)
gc.freeze()  # so that no process looks at all of that again
atexit.register(gc.unfreeze)  # as libraries look for leaks when the interpreter ends
if _collects:
    gc.enable()


def run(point, folder: Path):
    training_process.give_way = (folder / f"gave_way_{os.environ['RANK']}").touch
    return training_process.run(point, folder)


def run_each(points, folder: Path):
    """Take part in one run after the other, as far as each has so many processes."""
    store, returned = os.environ[process_group.STORE], []
    for number, point in enumerate(points):
        processes = sum(point.num_processes)
        os.environ |= {process_group.STORE: f"{store}.{number}", "WORLD_SIZE": str(processes)}
        rule_links._runs = itertools.count()  # of a group of their own
        taking_part = int(os.environ["RANK"]) < processes
        returned.append(run(point, folder / str(number)) if taking_part else None)
    return returned
