"""Conclusions, figures and page of a study; without STUDY: the page of all studies."""

import argparse
from pathlib import Path

from paceline.errors import SettingError

PAPERS = "papers"  # instead of a study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    text = "a file in experiments/, or papers for the ledger of their claims"
    parser.add_argument("study", metavar="STUDY", nargs="?", help=text)
    check = "print what weakens the study's numbers; exit code 1 if runs are compared unfairly"
    parser.add_argument("--check", action="store_true", help=check)
    verify = "of papers: test all claims anew; exit code 2 if a committed verdict differs"
    parser.add_argument("--verify", action="store_true", help=verify)
    single = "write the page to a file that needs no other, and so can be sent"
    parser.add_argument("--single", metavar="FILE", type=Path, help=single)


def run(options: argparse.Namespace, root: Path) -> int:
    from paceline.command.terminal import require_folder

    for name in ("check", "single"):
        if options.study in (None, PAPERS) and getattr(options, name):
            raise SettingError(name, "it is of one study; its name is needed")
    if options.verify and options.study != PAPERS:
        raise SettingError("verify", f"it is of the papers: paceline report {PAPERS} --verify")
    require_folder("single", options.single)
    if options.study is None:
        from paceline.analysis.evidence_table import write_evidence
        from paceline.report.front_page import write_front_page

        write_evidence(root)  # of the package, for plans
        print(write_front_page(root / "reports"))
    elif options.study == PAPERS:
        from paceline.report.papers_page import verify_papers, write_papers

        if options.verify:
            print(f"{verify_papers(root)} claims have the verdicts that their runs result in")
        else:
            print(write_papers(root))
    else:
        return _one_study(options, root)
    return 0


def _one_study(options: argparse.Namespace, root: Path) -> int:
    """Write tables, figures and the page of a study, and print the path of the page.

    With --check, returns 1 if the study compares runs that must not be compared, else 0.
    """
    from paceline.report.checks import UNFAIR, checks
    from paceline.report.findings import read_findings
    from paceline.report.page import report, single_page

    folder = root / "reports" / options.study
    _require_study(options.study, root)
    findings = read_findings(folder)
    page = report(findings, folder)
    if options.single:
        options.single.write_text(single_page(page))
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
        message = f"{study} has only single runs; paceline show KEY shows one, and a report needs "
        message += "several, of paceline train --multirun or of a file in experiments/"
        raise SettingError("study", message)
    from paceline.study.study_points import require_study  # imports Hydra

    require_study(study, root)
