"""The evidence of plans follows from the committed tables."""

from pathlib import Path

from paceline.analysis.evidence_table import find_evidence, write_evidence
from paceline.prediction.evidence import FILE, read_evidence

ROOT = Path(__file__).parents[2]
PATH = ROOT / "src/paceline/prediction" / FILE


def test_the_evidence_of_the_package_is_that_of_the_committed_tables(tmp_path):
    """`paceline report` renews it."""
    copy = tmp_path / "src/paceline/prediction" / FILE
    copy.parent.mkdir(parents=True)
    copy.touch()
    (tmp_path / "reports").symlink_to(ROOT / "reports")
    write_evidence(tmp_path)
    assert copy.read_text() == PATH.read_text()


def test_only_tables_that_are_not_known_are_read_again(tmp_path):
    """Of committed studies, since those that were run on this machine have tables, too."""
    rows = read_evidence()
    for study in {row.study for row in rows}:
        (tmp_path / study).symlink_to(ROOT / "reports" / study)
    others = [row for row in rows if row.study != "schemes"]
    names = ("small_cnn", "fashion_mnist")
    found = find_evidence(tmp_path, others, names)
    assert {row.study for row in found} == {"schemes"}
    assert find_evidence(tmp_path, rows, names) == []


def test_a_project_without_the_source_of_the_package_gets_no_file(tmp_path):
    write_evidence(tmp_path)
    assert not list(tmp_path.iterdir())
