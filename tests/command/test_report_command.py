"""`paceline report --check`: two lines for each rule with its evidence, and an exit code."""

from argparse import Namespace

import pytest

from paceline.cli import command
from paceline.errors import SettingError
from tests.made_reports import make_run, write_reports

CHECKED = Namespace(study="made", check=True, single=None, verify=False, records=None)


@pytest.mark.parametrize(("difference", "code", "verdict"), [(0, 0, "holds"), (-0.03, 1, "broken")])
def test_a_broken_rule_is_the_exit_code(tmp_path, capsys, difference, code, verdict):
    runs = [
        make_run("sync_allreduce", workers, 32, seed, test_top1=0.9 + (workers - 1) * difference)
        for workers in (1, 2)
        for seed in (0, 1, 2)
    ]
    write_reports(tmp_path / "reports/made", runs)
    assert command("report").run(CHECKED, tmp_path) == code
    *lines, _, _ = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[::2]] == ["1", "2", "3", "4", "5"]
    assert lines[0].startswith(f"1 {verdict}: ")
    assert lines[1].startswith(
        f"  of 1 schemes that are first at the target, {1 - code} end within 1 p"
    )
    assert lines[1].endswith("(made/tables/configurations.csv)")


def test_a_study_that_was_not_collected(tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/made.yaml").touch()
    with pytest.raises(SettingError, match="first: paceline sweep made"):
        command("report").run(CHECKED, tmp_path)


def test_a_name_without_a_study_is_not_sent_to_a_sweep(tmp_path):
    (tmp_path / "runs/adhoc").mkdir(parents=True)
    for name, told in (
        ("adhoc", "adhoc has only single runs, .*paceline show"),
        ("typo", "no typo"),
    ):
        with pytest.raises(SettingError, match=told):
            command("report").run(
                Namespace(study=name, check=False, single=None, verify=False, records=None),
                tmp_path,
            )
