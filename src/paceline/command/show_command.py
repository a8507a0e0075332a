"""Command `paceline show`: what there is of all studies, of one, of a record, or of two reports."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.command import Command
from paceline.errors import SettingError, tell

if TYPE_CHECKING:
    from rich.console import RenderableType


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    a = "a file in experiments/, the key of a record, or a folder with a report"
    parser.add_argument("study", metavar="STUDY", nargs="?", help=a)
    b = "the key of a record of STUDY, or another study or folder to compare it with"
    parser.add_argument("other", metavar="KEY or STUDY", nargs="?", help=b)
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument("--csv", metavar="PATH", help="write the comparison to a file")


def _run(options: argparse.Namespace, root: Path) -> int:
    study, other = options.study, options.other
    if options.open:
        return _open(study, root)
    from paceline.command.terminal import show

    if other is not None and _is_report(other, root):
        show([_compared(study, other, options.csv, root)])
    elif options.csv:
        raise SettingError("csv", "only a comparison of two studies is written to a file")
    else:
        show(_view(study, other, root))
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


def _is_report(name: str, root: Path) -> bool:
    return (root / "reports" / name).is_dir() or Path(name).is_dir()


def _compared(a: str, b: str, csv: str | None, root: Path) -> str:
    from paceline.analysis.frames import write_table
    from paceline.command.terminal import require_folder
    from paceline.report.compare import as_text, compare, read_report

    require_folder("csv", csv)
    compared = compare(*(read_report(name, root / "reports") for name in (a, b)))
    if csv:
        write_table(Path(csv), compared.rows)
    return as_text(compared)


def _open(study: str | None, root: Path) -> int:
    """Open the page of a study, or the front page, in the browser, and print its path.

    Returns the exit code: 1 if the page does not exist yet.
    """
    import webbrowser

    from paceline.command.studies_view import collected_rows
    from paceline.study.study_points import require_study

    if study is not None and not _is_report(study, root):
        require_study(study, root)
    page = root / "reports" / (study or "") / "index.html"
    if not page.is_file():
        made = study is None or collected_rows(root, study)
        first = f"report {study or ''}" if made else f"sweep {study}"
        tell(f"no {page.relative_to(root)}; run paceline {first.strip()} first")
        return 1
    webbrowser.open(page.as_uri())
    print(page.relative_to(root))
    return 0


COMMAND = Command(
    help="all studies; STUDY, one of them; KEY, a record; STUDY STUDY, two compared; --open",
    run=_run,
    add_arguments=_add_arguments,
)
