"""Command `paceline open`: a study's page in the browser."""

import argparse
import sys
from pathlib import Path

from paceline.command.command import Command


def _run(options: argparse.Namespace, root: Path) -> int:
    """Open the page and print its path; return 1 if there is none yet."""
    import webbrowser

    from paceline.study.overview import collected_rows
    from paceline.study.study_points import require_study

    require_study(options.study, root)
    page = root / "reports" / options.study / "index.html"
    if not page.is_file():
        known = collected_rows(root, options.study) or (root / "runs" / options.study).is_dir()
        first = "collect" if known else "sweep"
        print(
            f"paceline: no {page.relative_to(root)}; run paceline {first} {options.study} first",
            file=sys.stderr,
        )
        return 1
    webbrowser.open(page.as_uri())
    print(page.relative_to(root))
    return 0


COMMAND = Command(
    help="that page in the browser",
    run=_run,
    study=True,
)
