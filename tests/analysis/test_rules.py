"""The rules of comparison, each kept and broken by made-up tables."""

import pytest

from paceline.analysis.rules import rules
from paceline.analysis.tables import read_tables
from tests.made_decisions import made_tuning
from tests.made_reports import concluded, fail, make_run, write_reports, write_rows


def sides(*, speed=1500, top1=0.9, seeds=(0, 1, 2), **changes):
    """One worker (1000 images/s, 90 %), and two with `speed`, `top1` and other `changes`."""
    return [
        make_run("sync_allreduce", workers, 32, seed, **row)
        for workers, row in (
            (1, numbers(1000, 0.9)),
            (2, numbers(speed, top1) | changes),
        )
        for seed in seeds
    ]


def numbers(speed, top1):
    return {"images_per_second": speed, "top1": top1, "test_top1": top1}


def verdicts(tables):
    return list(rules(tables)["verdict"])


def rule(tables, number):
    return rules(tables).set_index("rule").loc[number]


def test_a_study_that_keeps_all_rules(made):
    assert verdicts(made(sides())) == ["holds"] * 5
    found = rule(made(sides()), 3)
    assert (
        found["evidence"] == "1 of 1 speed-ups are of one network (small_cnn of 7,674 parameters)"
    )


@pytest.mark.parametrize(
    ("top1", "verdict"),
    [
        ((0.904, 0.904, 0.904), "equal"),
        ((0.88, 0.88, 0.881), "different"),
        ((0.88, 0.9, 0.92), "not shown"),
    ],
)
def test_accuracy_is_equal_if_the_interval_lies_within_the_margin(made, top1, verdict):
    runs = sides()
    for run, value in zip(runs[3:], top1, strict=True):
        run["test_top1"] = value
    (row,) = concluded(made(runs), "baseline_verdict").to_dict("records")
    assert [row[f"baseline_{name}"] for name in ("verdict", "metric", "margin")] == [
        verdict,
        "test_top1",
        0.01,
    ]
    assert row["baseline_top1_difference_mean"] == pytest.approx(sum(top1) / 3 - 0.9)
    assert rule(made(runs), 1)["verdict"] == ("broken" if verdict == "different" else "holds")


def test_the_margin_is_the_studys_own(made):
    assert rule(made(sides(test_top1=0.88)), 1)["verdict"] == "broken"
    found = rule(made(sides(test_top1=0.88), margin=3), 1)
    assert found["verdict"] == "holds"
    assert found["evidence"].endswith("at the target, 1 end within 3 points of one worker")


def test_a_higher_accuracy_breaks_no_rule(made):
    assert rule(made(sides(test_top1=0.93)), 1)["verdict"] == "holds"


def test_a_seed_that_diverged_is_an_accuracy_that_differs(made):
    runs = sides()
    runs[-1] = fail(runs[-1], "diverged")
    found = rule(made(runs), 1)
    assert (found["verdict"], found["broken"], found["of"]) == ("broken", 1, 1)
    assert found["evidence"].endswith("+0.00 points (+0.00 to +0.00, n = 2, 1 diverged)")


def test_one_seed_or_no_accuracy_shows_nothing(made):
    found = rule(made(sides(seeds=[0])), 1)
    assert (found["verdict"], found["broken"], found["of"]) == ("holds", 0, 1)
    assert found["evidence"].endswith("0 end within 1 points of one worker")
    assert rule(made(sides(test_top1=None, top1=None)), 1)["verdict"] == "not applicable"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        (numbers(1200, 0.9), "broken"),
        (numbers(1200, 0.85), "holds"),  # faster, at a lower accuracy
        (numbers(900, 0.9), "holds"),
        (numbers(1200, 0.9) | {"hardware.cpu": "Another"}, "holds"),
        (numbers(1200, 0.9) | {"kind": "virtual"}, "holds"),
        (numbers(1200, 0.9) | {"data": "another"}, "holds"),
    ],
)
def test_no_other_run_of_one_worker_may_be_faster(made, changes, verdict):
    others = [make_run("async_parameter_server", 1, 128, s, **changes) for s in (0, 1, 2)]
    found = rule(made(sides() + others), 2)
    assert found["verdict"] == verdict
    if verdict == "broken":
        assert found["evidence"].endswith(
            "not sync_allreduce, batch_size 32, workers 2: one worker is 1.20 times as fast "
            "(1.20 to 1.20, n = 3) by async_parameter_server, batch_size 128, workers 1"
        )


@pytest.mark.parametrize("name", ["hardware.cpu", "versions.torch"])
def test_both_sides_ran_on_one_machine_with_one_version(made, name):
    found = rule(made(sides(**{name: "9.0"})), 2)
    assert found["verdict"] == "broken"
    assert f"{name} is" in found["evidence"]


def test_both_sides_are_of_one_content_of_the_data(made):
    both = sides(data_digest="b")
    assert rule(made(both), 2)["verdict"] == "holds"  # earlier records have no digest
    found = rule(made([{**run, "data_digest": run.get("data_digest", "a")} for run in both]), 2)
    assert found["verdict"] == "broken"
    assert "data_digest is a and b" in found["evidence"]


@pytest.mark.parametrize(("share", "verdict"), [(1.001, "holds"), (1.02, "broken")])
def test_a_little_less_memory_is_no_other_machine(made, share, verdict):
    found = rule(made(sides(**{"hardware.memory_bytes": int(2**34 * share)})), 2)
    assert found["verdict"] == verdict


def test_both_sides_train_one_network(made):
    found = rule(made(sides(num_parameters=5)), 3)
    assert (found["verdict"], found["broken"]) == ("broken", 1)
    assert found["evidence"].endswith(
        "not sync_allreduce, batch_size 32, workers 2: num_parameters"
    )


def test_a_configuration_with_one_seed_is_counted(made):
    found = rule(made(sides()[:4]), 4)
    assert (found["verdict"], found["broken"], found["of"]) == ("broken", 1, 2)
    assert "trained on 10,000 images" in found["evidence"]


@pytest.mark.parametrize(("tuned", "verdict"), [("another", "holds"), (None, "broken")])
def test_no_reported_run_has_tuned_a_rate(tmp_path, tuned, verdict):
    runs = sides()
    folder = write_reports(tmp_path / "made", runs)
    trials = [row | {"key": tuned or runs[0]["key"]} for row in made_tuning(runs[:1], {})]
    write_rows(folder / "tuning.csv", [*trials[0]], trials)
    assert rule(read_tables(folder), 4)["verdict"] == verdict


@pytest.mark.parametrize(
    ("name", "value"), [("lr", None), ("hardware.cpu", ""), ("commit", "0a+dirty")]
)
def test_settings_machine_and_code_are_known(made, name, value):
    found = rule(made(sides(**{name: value})), 5)
    assert (found["verdict"], found["broken"], found["of"]) == ("broken", 3, 6)
    assert found["evidence"].startswith("3 points ")


def test_an_optimizer_may_have_no_momentum(made):
    adam = [run | {"optimizer": "AdamW", "momentum": None} for run in sides()]
    assert rule(made(adam), 5)["verdict"] == "holds"


def test_without_one_worker_there_is_no_speedup_to_judge(made):
    assert verdicts(made(sides()[3:]))[:3] == ["not applicable"] * 3
