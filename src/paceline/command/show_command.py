"""Command `paceline show`: what there is of all studies, of one, or of a record."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.command import Command
from paceline.errors import tell

if TYPE_CHECKING:
    from rich.console import RenderableType


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    a = "a file in experiments/, a folder in reports/, or the key of a record"
    parser.add_argument("study", metavar="STUDY", nargs="?", help=a)
    parser.add_argument("key", metavar="KEY", nargs="?", help="the key of a record of STUDY")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")


def _run(options: argparse.Namespace, root: Path) -> int:
    if options.open:
        return _open(options.study, root)
    from paceline.command.terminal import show

    show(_view(options.study, options.key, root))
    return 0


def _view(study: str | None, key: str | None, root: Path) -> "Iterable[RenderableType]":
    from paceline.command.studies_view import studies_view, study_view
    from paceline.study.study_points import studies

    if study is None:
        return studies_view(root)
    if key is None and study in studies(root):
        return study_view(study, root)
    from paceline.command.record_view import find_record, record_view  # pandas takes half a second

    return record_view(find_record(study if key else "*", key or study, root), root)


def _open(study: str | None, root: Path) -> int:
    """Open the page of a study, or the front page, in the browser, and print its path.

    Returns the exit code: 1 if the page does not exist yet.
    """
    import webbrowser

    from paceline.command.studies_view import collected_rows
    from paceline.study.study_points import require_study

    if study is not None and not (root / "reports" / study).is_dir():
        require_study(study, root)
    page = root / "reports" / (f"{study}/index.html" if study else "README.md")
    if not page.is_file():
        made = study is None or collected_rows(root, study)
        first = f"report {study or ''}" if made else f"sweep {study}"
        tell(f"no {page.relative_to(root)}; run paceline {first.strip()} first")
        return 1
    webbrowser.open(page.as_uri())
    print(page.relative_to(root))
    return 0


COMMAND = Command(
    help="all studies; STUDY, one of them; KEY, a record; --open, the page in the browser",
    run=_run,
    add_arguments=_add_arguments,
)
