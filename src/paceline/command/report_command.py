"""Command `paceline report`: conclusions, page and figures of a study, and the front page."""

import argparse
import csv
import json
import tempfile
from pathlib import Path
from typing import Any, cast

from paceline.command import Command
from paceline.errors import SettingError, tell

PAPERS = "papers"  # instead of a study


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    text = (
        "a file in experiments/, or papers for the ledger of their claims; without it: the front "
    )
    text += "page, the papers, and the answers in README.md"
    parser.add_argument("study", metavar="STUDY", nargs="?", help=text)
    check = "print five rules of comparison; exit code 1 if the study breaks one"
    parser.add_argument("--check", action="store_true", help=check)
    verify = "of papers: derive all of it anew; exit code 2 if anything differs"
    parser.add_argument("--verify", action="store_true", help=verify)
    records = "of papers: a project of yours, the runs of whose reports are judged instead"
    parser.add_argument("--records", metavar="PROJECT", type=Path, help=records)
    single = "write the page to a file that needs no other, and so can be sent"
    parser.add_argument("--single", metavar="FILE", type=Path, help=single)


def _run(options: argparse.Namespace, root: Path) -> int:
    from paceline.analysis.evidence_table import write_evidence
    from paceline.command.terminal import require_folder
    from paceline.report.front_page import write_front_page
    from paceline.report.papers_page import verify_papers, write_papers
    from paceline.report.readme_answer import write_readme_answer

    single: Path | None = options.single
    for name in ("check", "single"):
        if options.study in (None, PAPERS) and getattr(options, name):
            raise SettingError(name, "it is of one study; its name is needed")
    for name in ("verify", "records"):
        if getattr(options, name) and options.study != PAPERS:
            raise SettingError(name, f"it is of the papers: paceline report {PAPERS} --{name}")
    if options.records and options.verify:
        raise SettingError("records", "pages of another project are not verified")
    if options.records and not (options.records / "reports").is_dir():
        raise SettingError("records", f"there is no folder {options.records / 'reports'}")
    require_folder("single", single)
    code = 0
    if options.verify:
        print(f"{verify_papers(root)} claims have the verdicts that their tables result in")
        return code
    if options.study is None:
        write_readme_answer(root)
        write_evidence(root)
    if options.study == PAPERS or (options.study is None and (root / "claims").is_dir()):
        print(write_papers(root, judged=options.records))
    elif options.study is not None:
        page = _report(options.study, root)
        if single:
            _write_single(page, single)
        if options.check:
            code = _check(page.parent)
        print(page)
    print(write_front_page(root / "reports"))
    return code


def _report(study: str, root: Path) -> Path:
    """Write tables, figures and the page of a study's report; return the path of the page."""
    from paceline.analysis.analyse import analyse
    from paceline.analysis.exchanges import analyse_exchanges
    from paceline.report.exchange_page import report_exchanges
    from paceline.report.front_page import is_of_exchanges
    from paceline.report.page import report

    folder = root / "reports" / study
    _require_study(study, root)
    if is_of_exchanges(folder):
        analyse_exchanges(folder)
        page = report_exchanges(folder)
    else:
        analyse(folder)
        page = report(folder)
        _tell_of_other_data(folder)
    _log(page, root / "runs" / study)
    return page


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


def _tell_of_other_data(folder: Path) -> None:
    """Print how many points of a study are of data that have changed since, if this is known.

    It is known for a study whose points all have the same settings of the data.
    """
    with (folder / "runs.csv").open(newline="") as file:
        digests = [row.get("data_digest") or None for row in csv.DictReader(file)]
    about = json.loads((folder / "study.json").read_text())
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


def _log(page: Path, records: Path) -> None:
    """Add the page as a single file to the study's run in MLflow, if the study has such a run."""
    from paceline.record.tracking.log import log_study_files, study_run

    if study_run(records) is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        sent = Path(folder) / page.name
        _write_single(page, sent)
        files = [sent, page.parent / "tables/decision.csv"]
        if unlogged := log_study_files(records, [file for file in files if file.exists()]):
            tell(f"{unlogged}; the next report tries again")


def _write_single(page: Path, file: Path) -> None:
    from paceline.report.page import single_page

    file.write_text(single_page(page))


def _check(folder: Path) -> int:
    """Print two lines for each rule of comparison; return 1 if the study breaks a rule, else 0."""
    from paceline.analysis.analyse import read_conclusion

    found = read_conclusion(folder, "rules")
    for _, row in found.iterrows():
        print(f"{row['rule']} {row['verdict']}: {row['asks']}")
        print(f"  {row['evidence']} ({folder.name}/{row['place']})")
    return int((found["verdict"] == "broken").any())


COMMAND = Command(
    help="conclusions, figures and page of a study; without STUDY: the front page; --check",
    run=_run,
    add_arguments=_add_arguments,
)
