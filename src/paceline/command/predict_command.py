"""Command `paceline predict`: a modelled cluster, without training."""

import argparse
import gc
from pathlib import Path

from paceline.command.command import Command
from paceline.errors import SettingError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=100, help="of each worker")
    parser.add_argument(
        "--draws", type=int, default=0, help="of what the profile assumes, for an interval"
    )
    parser.add_argument("--json", metavar="FILE", help="write the predictions to a file")
    parser.add_argument("--study", help="predict its measured points; no other arguments")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.prediction.predict import as_json, predict, table
    from paceline.prediction.predict_points import predict_points
    from paceline.study.compose import composed_each

    gc.collect()
    gc.freeze()  # else each collection visits all that was imported: a sixth of the time
    if options.study:
        if options.overrides:
            raise SettingError("study", f"its points have settings: {' '.join(options.overrides)}")
        print(predict_points(options.study, root).relative_to(root))
        return 0
    if options.json and not Path(options.json).parent.is_dir():
        raise SettingError("json", f"there is no folder {Path(options.json).parent}")
    predictions = [
        predict(each.config, options.steps, each.swept, options.draws)
        for each in composed_each(options.overrides, root)
    ]
    print(table(predictions))
    if options.json:
        Path(options.json).write_text(as_json(predictions))
    return 0


COMMAND = Command(
    help="""\
images/s, staleness and the busiest link of a modelled cluster, without training:
`paceline predict cluster=titan workload=googlenet workers=1,32,128`; --json FILE;
--study STUDY predicts its measured points -> reports/<study>/predictions.csv""",
    run=_run,
    settings=True,
    add_arguments=_add_arguments,
)
