"""What committed tables lead to: the evidence of plans, and what three studies conclude.

Their means, intervals and verdicts stay: committed_conclusions.csv.

The file is renewed by `python -m tests.analysis.test_committed_conclusions`, and every change of it
is to be explained.
"""

from pathlib import Path

import pandas as pd
import pytest

from paceline.analysis.configuration_table import configuration_table
from paceline.analysis.decision import decision
from paceline.analysis.evidence_table import find_evidence, write_evidence
from paceline.analysis.tables import read_tables
from paceline.prediction.evidence import FILE, read_evidence
from tests.tiny import REPOSITORY

CONCLUSIONS = Path(__file__).with_name("committed_conclusions.csv")
STUDIES = ("grid", "schemes", "twin")
COMPARED = ("speedup", "one_worker_top1_difference")
COMPARED += ("reference_speedup", "reference_top1_difference", "loss")
NUMBERS = ("test_top1", "images_per_second", "target_seconds")


def conclusions(study):
    """Rows of a study: its settings in one text, verdicts and numbers."""
    tables = read_tables(REPOSITORY / "reports" / study)
    decided, configurations = decision(tables), configuration_table(tables)
    made = [
        _numbers(study, decided, _ends(*COMPARED), ["verdict", "one_worker_accuracy"]),
        _numbers(study, configurations, ["target", *_ends(*NUMBERS)], []),
    ]
    return made[0].merge(made[1], on=["study", "settings"], how="outer", sort=True)


def _ends(*names):
    return [f"{name}_{end}" for name in names for end in ("mean", "low", "high")]


def _numbers(study, rows, numbers, texts):
    own = list(rows)[: list(rows).index("n")]
    settings = [
        "; ".join(f"{name}={row[name]}" for name in sorted(own) if not pd.isna(row[name]))
        for _, row in rows.iterrows()
    ]
    return rows[[*texts, *numbers]].assign(study=study, settings=settings)


@pytest.mark.slow
@pytest.mark.parametrize("study", STUDIES)
def test_conclusions_are_those_of_before(study):
    known = pd.read_csv(CONCLUSIONS).query("study == @study").reset_index(drop=True)
    found = conclusions(study)[list(known)].reset_index(drop=True)
    found = found.replace("", None).astype(known.dtypes)
    pd.testing.assert_frame_equal(found, known, rtol=1e-6, atol=1e-9)


PATH = REPOSITORY / "src/paceline/prediction" / FILE


def test_the_evidence_of_the_package_is_that_of_the_committed_tables(tmp_path):
    """`paceline report` renews it."""
    copy = tmp_path / "src/paceline/prediction" / FILE
    copy.parent.mkdir(parents=True)
    copy.touch()
    (tmp_path / "reports").symlink_to(REPOSITORY / "reports")
    write_evidence(tmp_path)
    assert copy.read_text() == PATH.read_text()


def test_only_tables_that_are_not_known_are_read_again(tmp_path):
    """Of committed studies, since those that were run on this machine have tables, too."""
    rows = read_evidence()
    for study in {row.study for row in rows}:
        (tmp_path / study).symlink_to(REPOSITORY / "reports" / study)
    others = [row for row in rows if row.study != "schemes"]
    names = ("small_cnn", "fashion_mnist")
    found = find_evidence(tmp_path, others, names)
    assert {row.study for row in found} == {"schemes"}
    assert find_evidence(tmp_path, rows, names) == []


def test_a_project_without_the_source_of_the_package_gets_no_file(tmp_path):
    write_evidence(tmp_path)
    assert not list(tmp_path.iterdir())


if __name__ == "__main__":
    pd.concat(map(conclusions, STUDIES)).to_csv(CONCLUSIONS, index=False, float_format="%.9g")
