"""Command `paceline report`: conclusions, page and figures of a study, and the front page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paceline.command import Command
from paceline.errors import SettingError, tell

if TYPE_CHECKING:
    from paceline.analysis.tables import Tables

PAPERS = "papers"  # instead of a study


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "a file in experiments/, or papers for the ledger of their claims; without it: the front "
    )
    text += "page of all studies"
    parser.add_argument("study", metavar="STUDY", nargs="?", help=text)
    check = "print what weakens the study's numbers; exit code 1 if runs are compared unfairly"
    parser.add_argument("--check", action="store_true", help=check)
    verify = "of papers: test all claims anew; exit code 2 if a committed verdict differs"
    parser.add_argument("--verify", action="store_true", help=verify)
    single = "write the page to a file that needs no other, and so can be sent"
    parser.add_argument("--single", metavar="FILE", type=Path, help=single)


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.command.terminal import require_folder

    single: Path | None = options.single
    for name in ("check", "single"):
        if options.study in (None, PAPERS) and getattr(options, name):
            raise SettingError(name, "it is of one study; its name is needed")
    if options.verify and options.study != PAPERS:
        raise SettingError("verify", f"it is of the papers: paceline report {PAPERS} --verify")
    require_folder("single", single)
    if options.verify:
        from paceline.report.papers_page import verify_papers

        print(f"{verify_papers(root)} claims have the verdicts that their runs result in")
    elif options.study is None:
        print(_all_studies(root))
    elif options.study == PAPERS:
        from paceline.report.papers_page import write_papers

        print(write_papers(root))
    else:
        return _one_study(options, root)
    return 0


def _all_studies(root: Path) -> Path:
    """Write the front page of all studies; return its path. Also renews the package's evidence."""
    from paceline.analysis.evidence_table import write_evidence
    from paceline.report.front_page import write_front_page

    write_evidence(root)
    return write_front_page(root / "reports")


def _one_study(options: argparse.Namespace, root: Path) -> int:
    """Write tables, figures and the page of a study, and print the path of the page.

    With --check, returns 1 if the study compares runs that must not be compared, else 0.
    """
    from paceline.report.checks import UNFAIR, checks
    from paceline.report.findings import read_findings
    from paceline.report.page import report

    folder = root / "reports" / options.study
    _require_study(options.study, root)
    findings = read_findings(folder)
    page = report(findings, folder)
    _tell_of_other_data(findings.tables)
    if options.single:
        _write_single(page, options.single)
    lines = checks(findings) if options.check else []
    for each in lines:
        print(*each)
    print(page)
    return int(any(each.sign == UNFAIR for each in lines))


def _require_study(study: str, root: Path) -> None:
    """Raise SettingError for a name of which there will never be a report."""
    files = [path.stem for path in root.glob("experiments/*.yaml")]
    if study in [*files, *(path.parent.name for path in root.glob("reports/*/study.json"))]:
        return
    if study in [path.name for path in root.glob("runs/*")]:
        message = f"{study} has only single runs, and a report needs a file in experiments/, which "
        message += "paceline sweep runs; paceline show KEY shows one of the runs"
        raise SettingError("study", message)
    from paceline.study.study_points import require_study  # imports Hydra

    require_study(study, root)


def _tell_of_other_data(tables: "Tables") -> None:
    """Print how many points of a study are of data that have changed since, if this is known.

    It is known for a study whose points all have the same settings of the data.
    """
    if "data_digest" not in tables.runs:
        return
    digests = [digest or None for digest in tables.runs["data_digest"]]
    about = tables.about
    if not any(digests) or any(name.partition(".")[0] == "data" for name in about["axes"]):
        return
    from omegaconf import OmegaConf

    from paceline.record.data_digest import is_of_other_data
    from paceline.record.point_config import PointConfig

    settings = OmegaConf.create({"data": {}})
    for name, value in about["settings"].items():
        if name.startswith("data."):
            OmegaConf.update(settings, name, value)
    values = cast("dict[str, Any]", OmegaConf.to_container(settings))
    data = PointConfig(values, of_record=True).target("data")
    if others := sum(is_of_other_data({"data_digest": each}, data) for each in digests):
        message = f"{others} of {len(digests)} points are of data that have changed since"
        tell(f"{message}; sweep.rerun=stale runs them again")


def _write_single(page: Path, file: Path) -> None:
    from paceline.report.page import single_page

    file.write_text(single_page(page))


COMMAND = Command(
    help="conclusions, figures and page of a study; without STUDY: the front page; --check",
    run=_run,
    add_arguments=_add_arguments,
)
