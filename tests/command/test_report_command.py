"""`paceline report --check`: a line for each check that finds something, and an exit code."""

from argparse import Namespace

import pytest

from paceline.cli import command
from paceline.errors import SettingError
from tests.made_reports import make_run, write_reports

CHECKED = Namespace(study="made", check=True, single=None, verify=False, records=None)


@pytest.mark.parametrize("code", [0, 1])
def test_an_unfair_comparison_is_the_exit_code(tmp_path, capsys, code):
    """Of a network with one worker and another one with two."""
    runs = [
        make_run("sync_allreduce", workers, 32, seed, num_parameters=9 + (workers - 1) * code)
        for workers in (1, 2)
        for seed in (0, 1, 2)
    ]
    write_reports(tmp_path / "reports/made", [run | {"commit": ""} for run in runs])
    assert command("report").run(CHECKED, tmp_path) == code
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines if line[:2] in ("✗ ", "! ")] == ["✗ "] * code + ["! "]


def test_a_study_that_was_not_collected(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/made.yaml").touch()
    with pytest.raises(SettingError, match="first: paceline sweep made"):
        command("report").run(CHECKED, tmp_path)


def test_a_name_without_a_study_is_not_sent_to_a_sweep(tmp_path):
    (tmp_path / "runs/adhoc").mkdir(parents=True)
    for name, told in (
        ("adhoc", "adhoc has only single runs; paceline show"),
        ("typo", "no typo"),
    ):
        with pytest.raises(SettingError, match=told):
            command("report").run(
                Namespace(study=name, check=False, single=None, verify=False, records=None),
                tmp_path,
            )
