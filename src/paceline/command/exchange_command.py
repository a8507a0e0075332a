"""Command `paceline exchange`: collectives between real processes, without training."""

import argparse
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    """Print what is recommended; an exchange that failed is a recorded result."""
    from paceline.analysis.exchanges import read_exchanges, recommendation
    from paceline.cluster.processes import preload
    from paceline.prediction.predict_points import exchange_predictor
    from paceline.report.exchange_page import recommended
    from paceline.study.exchange_study import exchange_study
    from paceline.study.hydra_error import hydra_errors

    preload()
    with hydra_errors("study"):
        path = exchange_study(options.study, root, options.overrides, exchange_predictor(root))
    exchanges = read_exchanges(path.parent)
    for answer in recommended(exchanges, recommendation(exchanges)):
        print(f"{answer.situation}: {answer.text}")
    print(path.relative_to(root))
    return 0


COMMAND = Command(
    help="""\
run a study of exchanges, whose points are collectives and not trainings, but for those
that have a record -> reports/<study>/exchanges.csv, and which collective to use""",
    run=_run,
    study=True,
    settings=True,
)
