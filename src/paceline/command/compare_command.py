"""Command `paceline compare`: two reports, scheme by scheme."""

import argparse
from pathlib import Path

from paceline.command.command import Command
from paceline.errors import SettingError


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("a", "b"):
        parser.add_argument(name, metavar=name.upper(), help="a study in reports/, or a folder")
    parser.add_argument("--csv", metavar="PATH", help="write the comparison to a file")


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.analysis.frames import write_table
    from paceline.report.compare import as_text, compare, read_report

    if options.csv and not Path(options.csv).parent.is_dir():
        raise SettingError("csv", f"there is no folder {Path(options.csv).parent}")
    a, b = (read_report(name, root / "reports") for name in (options.a, options.b))
    compared = compare(a, b)
    print(as_text(compared))
    if options.csv:
        write_table(Path(options.csv), compared.rows)
    return 0


COMMAND = Command(
    help="""\
two reports, of studies or folders: tiers, speed-ups, accuracy and images/s of the
situations that both have, and what differs in how they were run; --csv PATH""",
    run=_run,
    add_arguments=_add_arguments,
)
