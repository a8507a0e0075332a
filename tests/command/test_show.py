"""`paceline show`: what there is, what failed, what comes next."""

import json
import math
import os
import shlex
import shutil
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version

import pytest

from paceline import cli
from paceline.command.means_view import means_view
from paceline.command.show_command import age_of, next_command
from paceline.record.provenance import source_digest
from paceline.record.record import PartialRecord
from paceline.study.compose import composed
from paceline.study.study_points import Study, study_points
from tests.made_records import make_record
from tests.made_reports import make_run, write_page, write_reports
from tests.small_study import write_small_study


@pytest.fixture
def own(root, monkeypatch):
    """A repository with one study of four points, which has no records."""
    for path in (root / "experiments").glob("*.yaml"):
        path.unlink()
    write_small_study(root, "made", {"scheme": "gossip,sync_allreduce", "seed": "0,1"})
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "200")
    yield root
    for folder in ("runs", "reports"):
        shutil.rmtree(root / folder, ignore_errors=True)


@pytest.fixture
def said(own, monkeypatch, capsys):
    """The exit code, the lines of stdout, each with single spaces, and those of stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["paceline", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return ended.value.code, [" ".join(line.split()) for line in out.splitlines()], err

    return run


def finish(root, *positions, **changes):
    points = study_points("made", root)
    for n in positions:
        make_record(points[n].folder, points[n].config, **changes)
    return [points[n].key for n in positions]


def test_all_studies_are_counted_by_their_own_points(own, said):
    code, lines, _ = said("show")
    assert code == 0
    assert "made 0 of 4 not run" in lines
    finish(own, 0, started="2020-01-02T00:00:00+00:00")
    finish(own, 1, started="2001-02-03T00:00:00+00:00")
    trial = study_points("made", own, ["seed=7"])[0]
    make_record(trial.folder, trial.config, seed=7)
    (line,) = [line for line in said("show")[1] if line.startswith("made")]
    assert line.startswith("made 2 of 4 not complete ")
    days = (time.time() - datetime(2020, 1, 2, tzinfo=UTC).timestamp()) / 86400
    assert line.endswith(f" {days:.0f} days")  # the age of its newest run


def test_a_study_shows_configurations_failures_and_what_is_next(own, said):
    finish(own, 0, test_top1=0.875)
    (failed,) = finish(own, 1, status="failed", reason="no luck", top1=None, test_top1=None)
    code, lines, _ = said("show", "made")
    assert code == 0
    assert lines[0] == "Does it?"
    assert "gossip 2 of 2 1 failed 87.50 %" in lines
    assert "sync_allreduce 0 of 2" in lines
    assert "made: 4 points: 1 finished, 1 failed, 2 to do" in lines
    assert f"failed {failed}: scheme=gossip seed=1: no luck" in lines
    assert lines[-1] == "next: paceline sweep made"


def test_records_of_other_code_are_counted_by_the_code_of_today(own, said):
    finish(own, 0, source_digest=source_digest())
    finish(own, 1, 2, source_digest="of another code")
    assert [line for line in said("show")[1] if line.startswith("made 3 of 4 not complete 2 ")]
    told = "made by a different version of the code: 2; sweep.rerun=stale runs them again"
    assert told in said("show", "made")[1]
    shutil.rmtree(own / "runs")
    finish(own, 0, source_digest=source_digest())
    assert not [line for line in said("show", "made")[1] if "different version" in line]


def test_a_point_under_way_is_seen(own, said):
    point = study_points("made", own)[2]
    partial = PartialRecord(point.folder)
    (partial.folder / "progress.csv").write_text(
        "samples,seconds,share,train_loss,images_per_second\n5,1,0.25,2.0,5\n"
    )
    assert "sync_allreduce 0 of 2 running 25%" in said("show", "made")[1]
    assert "made 0 of 4 running" in said("show")[1]
    partial.discard()
    assert "made 0 of 4 not run" in said("show")[1]


def test_a_study_whose_records_are_elsewhere_is_shown_by_its_tables(own, said):
    runs = [
        make_run(scheme, workers, 32, seed, test_top1=0.9 - 0.1 * (scheme != "sync_allreduce"))
        for scheme in ("async_parameter_server", "sync_allreduce")
        for workers in (1, 2)
        for seed in (0, 1, 2)
    ]
    write_small_study(
        own,
        "made",
        {"scheme": "async_parameter_server,sync_allreduce", "workers": "1,2", "seed": "0,1,2"},
    )
    write_reports(own / "reports/made", runs)
    _, lines, _ = said("show", "made")
    assert "async_parameter_server 2 32 3 of 3 80.00 %" in lines
    assert lines[-1] == "next: paceline report made"
    write_page(own / "reports/made")
    assert said("show", "made")[1][-1] == "next: paceline show made --open"
    (line,) = [line for line in said("show")[1] if line.startswith("made")]
    answer = json.loads((own / "reports/made/metrics.json").read_text())["answer"]
    assert line.endswith(f" {answer}")
    write_small_study(own, "other", {"seed": "0,1"})
    (own / "experiments/no_yaml.yaml").write_text("{\n:\n")
    for name in ("reports/made/runs.csv", "reports/made/study.json"):
        (own / name).write_text("{\n:\n")
        shown = " ".join(said("show")[1])
        assert name in shown
        assert "other 0 of 2 not run" in shown
        code, _, error = said("show", "made")
        assert (code, error.count("\n")) == (2, 1)


def test_a_record_shows_its_settings_and_is_repeated_by_its_command(own, said):
    (key,) = finish(own, 0)
    code, lines, _ = said("show", key[:6])
    assert (code, lines[0]) == (0, f"runs/made/{key}")
    assert "scheme gossip" in lines
    assert "data.num_train 600" in lines
    assert "samples 128" in lines
    assert not [line for line in lines if line.startswith("training.lr ")]
    beginning = "repeat: paceline train "
    assert lines[-1].startswith(beginning)
    words = shlex.split(lines[-1].removeprefix(beginning))
    assert composed(words, own).key == key


def test_an_age_has_the_largest_unit_of_which_there_are_two():
    ages = {-3: "0 s", 119: "119 s", 120: "2 minutes", 7200: "2 hours", 172800: "2 days"}
    assert {seconds: age_of(seconds) for seconds in ages} == ages


def test_an_unknown_name_is_one_line(own, said):
    made = "study: there is no {}, did you mean made?"
    for words, message in (
        ("show maed", "study: there is no study or record maed, did you mean made?"),
        ("show mad 00", made.format("mad")),
        ("show made 0123456789ab", "key: made has no record 0123456789ab"),
        ("show mad --open", f"{made.format('mad')}; there are: made"),
        ("shwo", "command: there is no shwo, did you mean show?; paceline --help lists all"),
    ):
        assert said(*words.split()) == (2, [], f"paceline: {message}\n")
    assert said("--version") == (0, [f"paceline {version('paceline')}"], "")
    finish(own, 0, 1, 2, 3)
    for folder in list((own / "runs/made").iterdir()):
        folder.rename(folder.with_name("ab" + folder.name[2:]))
    code, _, error = said("show", "ab")
    told = "paceline: key: ab begins more than one; name its study too: made ab"
    assert (code, error[: len(told)]) == (2, told)


def test_open_opens_the_page_or_says_what_to_run_first(own, said, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert said("show", "made", "--open") == (
        1,
        [],
        "paceline: no reports/made/index.html; run paceline sweep made first\n",
    )
    page = own / "reports/made/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<p>made</p>")
    assert said("show", "made", "--open") == (0, ["reports/made/index.html"], "")
    assert opened == [page.as_uri()]


def test_points_come_before_the_page_which_is_opened_until_a_record_is_newer(tmp_path):
    assert next_command("made", tmp_path, complete=False) == "paceline sweep made"
    page = tmp_path / "reports/made/index.html"
    record = tmp_path / "runs/made/abc/result.json"
    for file, seconds, command in (
        (page, 1000, "paceline show made --open"),
        (record, 2000, "paceline report made"),
    ):
        file.parent.mkdir(parents=True)
        file.write_text("{}")
        for path in (*file.parent.rglob("*"), file.parent):
            os.utime(path, (seconds, seconds))
        assert next_command("made", tmp_path, complete=True) == command


T = 12.706204736  # Student's t at 0.975, one degree of freedom


def test_means_are_over_the_seeds_of_a_configuration(root):
    write_small_study(root, "made", {"scheme": "gossip,sync_allreduce", "seed": "0,1"})
    changes = [
        {"test_top1": 0.5, "images_per_second": 60.0},
        {"test_top1": 0.504, "images_per_second": 66.0},
        {"test_top1": 0.875, "images_per_second": 25.0},
        {"status": "failed", "test_top1": None},
    ]
    for point, changed in zip(Study("made", root).points, changes, strict=True):
        make_record(point.folder, point.config, **changed)
    table, following = means_view(Study("made", root).points)
    assert [column.header.plain for column in table.columns] == [
        *("scheme", "top-1, test", "images/s", "finished")
    ]
    least, most = 50.2 - 100 * T * 0.002, 50.2 + 100 * T * 0.002
    mean, factor = math.sqrt(60 * 66), math.exp(T * math.log(66 / 60) / 2)
    rate = f"{mean:.0f} ({mean / factor:.0f} to {mean * factor:.0f}), n = 2"
    cells = [[str(cell) for cell in column.cells] for column in table.columns]
    assert [*zip(*cells, strict=True)] == [
        ("gossip", f"50.20 % ({least:.2f} to {most:.2f}), n = 2", rate, "2 of 2 measured"),
        (
            "sync_allreduce",
            *(f"{mean} (no interval), n = 1" for mean in ("87.50 %", "25")),
            "1 of 2 measured",
        ),
    ]
    assert following == "next: paceline report made"
