"""The process of a point, which takes its share of a core that others want, too.

A paced worker beside a server gives way to everything on its machine: beside busy processes, as
tests may run, it would hardly run at all.
"""

from paceline.run import process


def run(*arguments):
    process.give_way = lambda: None
    return process.run(*arguments)
