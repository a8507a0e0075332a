"""The process of a point, which takes its share of a core that others want, too.

A paced worker beside a server gives way to everything on its machine: beside busy processes, as
tests may run, it would hardly run at all. Here it leaves a file that says so.
"""

import os
from pathlib import Path

from paceline.run import training_process


def run(point, folder: Path):
    training_process.give_way = (folder / f"gave_way_{os.environ['RANK']}").touch
    return training_process.run(point, folder)
