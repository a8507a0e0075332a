"""A record that another study has is copied under the study that needs it."""

import pytest
import yaml

from paceline.command.sweep_command import print_plan
from paceline.record.provenance import source_digest
from paceline.record.rows import POINT_TABLES
from paceline.study.study_points import study_points
from paceline.study.sweep import checked_study, sweep
from tests.made_records import make_record

UNLOGGED = ["measurement.mlflow.tracking_uri=null"]


@pytest.fixture
def studies(root, studied):
    """Two studies with the same points but for a seed; `other` has more of them."""
    modelled = {"defaults": [{"override /data": "made"}, {"override /cluster": "virtual"}]}
    studied("made", modelled, seed="0,1")
    studied("other", {**modelled, "question": "Another?", "margin": 2}, seed="0,1,2")
    return root


def record(point, **changes):
    new = {"kind": "virtual", "source_digest": source_digest()}
    return make_record(point.folder, point.config, **{**new, **changes})


def runner():
    """Stands in for a launcher: trains what it is asked for, and notes the seeds."""
    seeds = []

    def run(points):
        seeds.extend(point.config.seed for point in points)
        return [record(point) for point in points]

    return run, seeds


def test_a_record_of_another_study_is_copied_and_not_trained(studies, capsys):
    first, *_ = study_points("other", studies)
    theirs = record(first, status="diverged", reason="why", test_top1=0.125)
    (first.folder / "weights.pt").write_bytes(b"weights")
    run, seeds = runner()
    assert sweep(checked_study("made", studies, UNLOGGED), run)
    assert seeds == [1]
    assert f"{first.key} seed=0: taken over from other" in capsys.readouterr().out
    ours = study_points("made", studies)[0]
    assert ours.key == first.key
    assert ours.result == {**theirs, "study": "made"}
    for name in (*(f"{table.name}.csv" for table in POINT_TABLES[:3]), "weights.pt"):
        assert (ours.folder / name).read_bytes() == (first.folder / name).read_bytes()
    config = yaml.safe_load((ours.folder / "config.yaml").read_text())
    assert (config["study"], config["question"], config["margin"]) == ("made", "Does it?", 1)
    assert {path.name for path in ours.folder.parent.iterdir()} == {
        each.key for each in study_points("made", studies)
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed"},
        {"source_digest": "0123"},
        {"kind": "measured"},
        {"kind": "paced"},
    ],
)
def test_what_failed_or_is_of_other_code_or_of_real_processes_is_not(studies, changes, capsys):
    record(study_points("other", studies)[0], **changes)
    run, seeds = runner()
    assert sweep(checked_study("made", studies, UNLOGGED), run)
    assert seeds == [0, 1]
    assert "taken over" not in capsys.readouterr().out


def test_a_renewed_sweep_takes_over_what_the_present_code_made_but_not_to_do_all_again(studies):
    ours, other = study_points("made", studies), study_points("other", studies)
    for point in ours:
        record(point, source_digest="0123")
    record(other[1], test_top1=0.25)
    seen = []

    def run(points):
        seen.append(points)
        return [None for _ in points]

    assert sweep(checked_study("made", studies, [*UNLOGGED, "sweep.rerun=all"]), run)
    assert all(p.result["source_digest"] == "0123" for p in study_points("made", studies))
    assert sweep(checked_study("made", studies, [*UNLOGGED, "sweep.rerun=stale"]), run)
    renewed = [p.result["source_digest"] for p in study_points("made", studies)]
    assert renewed == ["0123", source_digest()]
    assert [len(points) for points in seen] == [2, 1]


def test_a_dry_run_counts_what_would_be_taken_over_and_copies_nothing(studies, capsys):
    record(study_points("other", studies)[0], wall_seconds=60)
    print_plan(checked_study("made", studies))
    out = capsys.readouterr().out
    assert "1 to run, 1 to take over" in out
    assert "about 1.0 minutes" in out
    assert not (studies / "runs/made").exists()
