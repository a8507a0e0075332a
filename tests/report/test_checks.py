"""Each condition that weakens numbers is noticed; what keeps all conditions has no line.

`paceline report --check` prints the lines, and an unfair comparison is its exit code.
"""

import re
from argparse import Namespace

import pytest

from paceline.cli import command
from paceline.errors import SettingError
from paceline.record.rows import of_one_rate
from paceline.report.checks import CAUTION, UNFAIR, checks
from tests.made_decisions import made_tuning
from tests.made_findings import numbers
from tests.made_reports import fail, make_run, write_page, write_reports


def sides(*, seeds=(0, 1, 2), **changes):
    """One worker (1000 images/s, 90 %), and two (1500 images/s) with `changes`."""
    return [
        make_run("sync_allreduce", workers, 32, seed, **row)
        for workers, row in ((1, scored(1000, 0.9)), (2, scored(1500, 0.9) | changes))
        for seed in seeds
    ]


def scored(speed, top1):
    return {"images_per_second": speed, "top1": top1, "test_top1": top1}


def pair(**changes):
    return [make_run(seed=seed, **changes) for seed in (0, 1)]


@pytest.fixture
def unfair(findings):
    return lambda runs, **about: texts(findings(runs, **about), UNFAIR)


@pytest.fixture
def cautions(findings):
    return lambda runs, **about: texts(findings(runs, **about), CAUTION)


def texts(found, sign):
    return [line.text for line in checks(found) if line.sign == sign]


def only(found):
    (text,) = found
    return text


def test_nothing_to_say(findings):
    assert checks(findings(sides())) == []


@pytest.mark.parametrize("name", ["hardware.cpu", "versions.torch", "num_parameters"])
def test_both_sides_are_of_one_machine_version_and_network(unfair, name):
    assert f"{name} is " in only(unfair(sides(**{name: 9})))


def test_both_sides_are_of_one_content_of_the_data(unfair):
    runs = sides(data_digest="b")
    assert unfair(runs) == []  # earlier records have no digest
    found = unfair([{**run, "data_digest": run.get("data_digest", "a")} for run in runs])
    assert "2 different contents" in only(found)


@pytest.mark.parametrize("test_top1", [0.9, None])
def test_no_rate_was_tuned_on_the_images_of_the_reported_accuracy(unfair, test_top1):
    runs = [run | {"test_top1": test_top1} for run in sides()]
    found = unfair(runs, trials=made_tuning(runs[:1], {}))
    assert ["were tuned" in text for text in found] == [True] * (test_top1 is None)


@pytest.mark.parametrize(
    ("changes", "rate", "is_said"),
    [
        ({}, "by_rule", True),
        ({"lr": 0.01}, "by_rule", False),
        ({"momentum": 0.5}, "by_rule", False),
        ({"workers": 4}, "by_rule", False),  # another situation
        ({"workers": 1}, "by_rule", False),
        ({"top1": None}, "by_rule", False),
        ({}, "tuned", False),
    ],
)
def test_schemes_whose_rates_were_not_searched_are_named_on_the_page_and_by_the_sweep(
    findings, changes, rate, is_said
):
    """Both had a rate of 0.05 and a momentum of 0.9."""
    runs = [*pair(workers=2), *(run | changes for run in pair(scheme="gossip", workers=2))]
    found = findings(runs, settings={"training.rate": rate})
    schemes = ["gossip", "sync_allreduce"] if is_said else []
    assert of_one_rate(runs, found.tables.about["axes"], rate) == schemes
    assert any(text.startswith("Do not compare") for text in texts(found, UNFAIR)) == is_said


@pytest.mark.parametrize(
    ("kind", "jitter", "slow", "expected"),
    [
        ("virtual", 0.3, 0, ["30.0"]),
        ("virtual", 0.3, 1, ["30.0", "4"]),
        ("virtual", 0, 0, None),
        ("paced", 0.3, 0, None),
    ],
)
def test_assumed_times_are_said(findings, kind, jitter, slow, expected):
    runs = [run | {"cluster.slow_workers": slow} for run in pair(kind=kind)]
    found = findings(runs, settings={"cluster.step_jitter": jitter, "cluster.slow_factor": 4})
    said = [text for text in texts(found, CAUTION) if "assumed" in text]
    assert [numbers(text)[: len(expected or ())] for text in said] == [expected] * bool(expected)


LATE = [{"kind": "paced", "samples": 640, "late_steps": n} for n in (0, 5)]  # of 20 steps each
BUSY = {"load_of_others": 0.351}
STOOD_STILL = {"stopped_seconds": 11.65, "wall_seconds": 70}
STARTED = {"started": "2026-01-02T03:04:05+00:00", "wall_seconds": 120}
LOST = "worker 1 was lost after 3 steps: killed by SIGKILL"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([{"servers": 1, "hardware.cores": 2}] * 2, "2 of 2 .*: 3 on 2. .*all-reduce"),
        ([{"jobs": 4}, {"jobs": 4}], "2 of 2 .*: 8 on 4"),
        ([{"jobs": 4, "kind": "paced"}] * 2, None),  # they sleep
        ([{"jobs": 4, "kind": "virtual"}] * 2, None),  # of one process
        ([{"accelerator": "cpu"}, {"accelerator": "cuda"}], "Measured .* accelerator cpu, cuda"),
        ([{}, {"workers_per_accelerator": 4}], r"1 of 2 .*\(4 on one\)"),
        ([{"workers_per_accelerator": 1}] * 2, None),
        (LATE, "1 of 2 paced .* 25.0 %"),
        ([{}, {"reason": LOST}], f"1 measured run finished.* all means.* seed 1: {LOST}"),
        ([BUSY, {"load_of_others": 0.05}], r"1 of 2 runs .* seed 0: other .* 35 % of its cores\."),
        ([BUSY | {"kind": "virtual"}] * 2, None),
        ([{}, STOOD_STILL], r"1 of 2 runs .* seed 1: a process stood still for 11\.7 s\."),
        ([STOOD_STILL | {"wall_seconds": 1200}] * 2, None),
        ([{"images_per_second": 35}, {"images_per_second": 67}], r"1 of 1 .* 25 %.*, 35 to 67\."),
        ([{"images_per_second": 54}, {"images_per_second": 67}], None),
        ([STARTED, STARTED], r"\(A Made-up .*, 4 cores\) within 2 min.* 2026-01-02 03:04 UTC"),
        ([{"commit": ""}, {"commit": "0a+dirty"}], "2 runs without a commit"),
    ],
)
def test_a_condition_that_weakens_the_numbers(cautions, changes, says):
    """Two points of two workers, each with these changes."""
    runs = [make_run(workers=2, seed=seed, **own) for seed, own in enumerate(changes)]
    found = cautions(runs)
    assert len(found) == (says is not None)
    assert says is None or re.search(says, found[0])


def test_conditions_differ_within_a_kind_only(cautions):
    others = [make_run(workers=2, seed=s, kind="paced", jobs=2) for s in (0, 1)]
    assert cautions([*pair(), *others]) == []


def test_a_super_linear_speed_up_comes_with_a_warning(cautions):
    text = only(cautions(sides(images_per_second=2500)))
    assert numbers(text)[:3] == ["1", "1", "125"]


def test_a_search_with_a_best_rate_at_an_edge_or_with_few_trials_that_trained_is_named(cautions):
    (best,) = made_tuning(pair(), {"sync_allreduce": "lowest learning rate"}, workers=1)
    lost = [best | {"key": f"d{n}", "status": "diverged", "chosen": "false"} for n in range(2)]
    assert "lowest learning rate" in only(cautions(pair(), trials=[best, lost[0]]))
    assert "Search unreliable: 1 of 3 trials" in cautions(pair(), trials=[best, *lost])[1]
    assert cautions(pair(), trials=[best | {"at_edge": ""}, lost[0]]) == []


@pytest.mark.parametrize(
    ("alone", "several", "says"), [([1], [2], True), ([1], [1], False), ([1, 2], [4], False)]
)
def test_one_worker_has_a_budget_that_was_not_tuned(cautions, alone, several, says):
    epochs = "training.epochs"
    runs = [
        run | {epochs: n, "key": f"{run['key']}{n}"}
        for run in sides()
        for n in (alone, several)[run["workers"] - 1]
    ]
    found = cautions(runs, axes=["scheme", "workers", "batch_size", "seed", epochs])
    assert [numbers(text) for text in found] == [["1"]] * says


def test_points_that_ended_badly_are_counted_and_the_first_is_named(cautions):
    runs = [fail(make_run(seed=s), "diverged", text) for s, text in enumerate(("NaN", "chance"))]
    runs += [make_run(workers=2, seed=s) for s in (0, 1)]
    runs += [fail(make_run(workers=2, seed=2))]
    diverged, failed = cautions(runs)
    assert numbers(diverged) == ["2", "1", "0"]
    assert diverged.endswith("NaN.")
    assert numbers(failed) == ["1", "2", "2", "1", "1"]
    assert failed.endswith("worker 1 ended with exit code 1.")


def test_records_that_do_not_fit_are_named_with_their_reasons(cautions):
    text = only(cautions(pair(), unfit={"abc": "curve.csv: there is none"}))
    assert text.endswith(": abc (curve.csv: there is none).")


def test_one_seed_is_said(cautions):
    assert numbers(only(cautions([make_run()]))) == ["1", "1"]


def test_unfair_comparisons_are_red_and_cautions_are_listed(findings):
    found = findings([run | {"commit": ""} for run in sides(num_parameters=9)])
    unfair, caution = checks(found)
    page = write_page(folder := found.tables.archive.parent).read_text()
    assert f'<p class="broken">✗ {unfair.text}</p>' in page
    assert ".broken { color: var(--bad)" in page
    assert f"<li>{caution.text}</li>" in page
    assert f"**✗ {unfair.text}**" in (folder / "README.md").read_text()


def test_a_page_of_fair_comparisons_has_no_red_line(reports):
    assert 'class="broken"' not in reports(sides())


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
