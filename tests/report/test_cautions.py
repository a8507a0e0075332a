"""Cautions: each condition is noticed, with its numbers; a broken rule is a red line."""

import pytest

from paceline.record.rows import of_one_rate
from paceline.report.doubts import broken_rules, cautions, unsearched
from paceline.report.findings import read_findings
from paceline.report.how_it_was_run import subtitle
from paceline.report.number_format import MISSING
from paceline.report.page_tables import page_tables
from tests.made_decisions import arm, made_family, write_decided
from tests.made_findings import numbers
from tests.made_reports import fail, made_runs, make_run, write_page, write_reports


def seeds(**changes):
    return [make_run(seed=seed, **changes) for seed in (0, 1)]


def only(texts):
    (text,) = texts
    return text


def test_nothing_to_say(findings):
    assert cautions(findings(seeds())) == []


@pytest.mark.parametrize(
    ("kind", "jitter", "of_machine", "slow", "expected"),
    [
        ("virtual", 0.3, None, 0, ["0.3"]),
        ("virtual", 0.3, None, 1, ["0.3", "4"]),
        ("virtual", 0.3, [0, 0.1], 0, ["0.3"]),
        ("virtual", 0.05, [0, 0.1], 0, None),  # the machine's own
        ("virtual", 0, None, 0, None),
        ("paced", 0.3, None, 0, None),
    ],
)
def test_assumed_times_are_said_and_a_machine_of_other_times(
    findings, kind, jitter, of_machine, slow, expected
):
    runs = [run | {"cluster": "ec2_p2", "cluster.slow_workers": slow} for run in seeds(kind=kind)]
    settings = {"cluster.step_jitter": jitter, "cluster.slow_factor": 4}
    if of_machine:
        settings["cluster.assumed.step_jitter"] = of_machine
    found = findings(runs, settings=settings)
    texts = [text for text in cautions(found) if "jitter" in text]
    assert len(texts) == (expected is not None)
    for number in expected or ():
        assert number in numbers(texts[0])
    first = subtitle(found)
    other = of_machine is not None and jitter > of_machine[1]
    assert ("cluster.step_jitter=0.3 where ec2_p2 has 0 to 0.1" in first) is other


def test_points_that_ended_badly_are_named_with_their_reasons(findings):
    diverged, failed = cautions(findings(made_runs()))
    assert numbers(diverged) == ["1", "2", "128", "2", "-1", "0.100"]
    assert "diverged" in diverged
    assert numbers(failed) == ["1", "2", "32", "2", "1", "1"]
    assert failed.endswith("worker 1 ended with exit code 1")


def test_seeds_that_diverged_together_are_named_together(findings):
    reasons = ("NaN", "no luck", "chance", "a fourth reason")
    runs = [fail(make_run(seed=s), "diverged", text) for s, text in enumerate(reasons)]
    text = only(cautions(findings(runs)))
    assert numbers(text) == ["4", "1", "0", "1", "2", "3", "1"]
    assert [reason in text for reason in reasons] == [True, True, True, False]


def test_a_failed_point_alone(findings):
    assert numbers(only(cautions(findings([fail(make_run())]))))[:3] == ["1", "1", "0"]


@pytest.mark.parametrize(
    ("runs", "pair"),
    [
        (
            [make_run("async_parameter_server", 2, 32, s, **{"hardware.cores": 2}) for s in (0, 1)],
            "3 on 2",
        ),
        (seeds(workers=2, jobs=4), "8 on 4"),
        (seeds(workers=2, jobs=4, kind="paced"), "8 on 4"),
    ],
)
def test_more_processes_than_cores(findings, runs, pair):
    """Workers and servers of all points that ran at once."""
    text = only(cautions(findings(runs)))
    assert numbers(text)[:2] == ["2", "2"]
    assert f"than cores: {pair}." in text
    assert ("expected of paced" in text) == (runs[0]["kind"] == "paced")


def test_each_scheme_that_was_measured_on_too_few_cores_is_named(findings):
    crowded = {"hardware.cores": 2}
    runs = [make_run("async_parameter_server", 2, 32, 0, **crowded)]
    runs += [make_run("gossip", 2, 32, 0, jobs=2, **crowded), make_run(seed=0, **crowded)]
    first, second = [text for text in cautions(findings(runs)) if "cores" in text]
    assert "1 of 1 measured point of asynchronous servers had" in first
    assert "1 of 1 measured point of gossip had" in second


def test_rates_that_were_searched_elsewhere(findings):
    """Of two networks one is that of the search, and a rate by rule has no search."""
    name = "cluster.link.bandwidth"
    axes = ["scheme", "workers", "seed", "training.rate", name]
    runs = [
        make_run(seed=seed, key=f"{seed}{rate}{bandwidth or 0:.0f}")
        | {name: bandwidth, "training.rate": rate}
        for seed in (0, 1)
        for rate, bandwidth in (("tuned", None), ("tuned", 125e6), ("by_rule", 125e6))
    ]
    at = {name: None, "cluster.slow_workers": 0}  # of which the second is no axis
    found = [
        text
        for text in cautions(findings(runs, axes=axes, tuning=[{"at": at}]))
        if "searched" in text
    ]
    assert numbers(only(found)) == ["2", "4"]
    assert "links without a limit" in only(found)
    del at[name]
    assert not [
        t for t in cautions(findings(runs, axes=axes, tuning=[{"at": at}])) if "searched" in t
    ]


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
    runs = [*seeds(workers=2), *(run | changes for run in seeds(scheme="gossip", workers=2))]
    found = findings(runs, settings={"training.rate": rate})
    schemes = ["gossip", "sync_allreduce"] if is_said else []
    assert of_one_rate(runs, found.tables.about["axes"], rate) == schemes
    assert any("gossip" in text for text in unsearched(found.tables)) == is_said


def test_points_that_ran_under_different_conditions(findings):
    runs = [make_run(seed=0, accelerator="cpu"), make_run(seed=1, accelerator="cuda")]
    text = only(cautions(findings(runs)))
    assert text.startswith("Measured points")
    assert text.endswith("accelerator cpu, cuda.")


def test_conditions_differ_within_a_kind_only(findings):
    runs = [make_run(seed=s) for s in (0, 1)]
    runs += [make_run(workers=2, seed=s, kind="paced", jobs=2) for s in (0, 1)]
    assert cautions(findings(runs)) == []


def test_workers_that_shared_a_gpu(findings):
    """Numbers of other records are empty."""
    runs = [make_run(seed=0), make_run(seed=1, workers_per_accelerator=4)]
    text = only(cautions(findings(runs)))
    assert text.startswith("1 of 2 measured points had workers that shared a GPU (4 on one)")
    assert cautions(findings([make_run(seed=s, workers_per_accelerator=1) for s in (0, 1)])) == []


def test_steps_that_were_too_late_for_the_pace(findings):
    """20 steps each, of 2 workers."""
    late = [
        make_run(workers=2, seed=s, kind="paced", samples=640, late_steps=n)
        for s, n in enumerate((0, 5))
    ]
    assert numbers(only(cautions(findings(late)))) == ["1", "2", "25.0"]


def test_a_virtual_run_has_one_process_and_modelled_time(findings):
    text = only(cautions(findings(seeds(workers=2, jobs=4, kind="virtual"))))
    assert numbers(text) == ["2", "2"]


def test_links_that_cost_nothing(findings):
    virtual, free = seeds(kind="virtual"), {"cluster.link.bandwidth": None}
    assert len(cautions(findings(virtual, settings=free))) == 2
    assert len(cautions(findings(virtual, settings={"cluster.link.bandwidth": 1e9}))) == 1
    assert cautions(findings(seeds(kind="measured"), settings=free)) == []


def test_a_worker_that_was_lost_on_the_way(findings):
    _, other = runs = seeds(workers=2)
    other["reason"] = "worker 1 was lost after 3 steps: killed by SIGKILL"
    text = only(cautions(findings(runs)))
    assert numbers(text) == ["1", "2", "1", "1", "3"]
    assert text.endswith(other["reason"])


def test_what_is_missing(findings):
    missing = only(cautions(findings(seeds(), num_points=5, missing=["abc"])))
    assert numbers(missing) == ["1", "5"]
    assert "abc" in missing


def test_points_of_data_that_have_changed(findings):
    runs = seeds()
    assert cautions(findings(runs)) == []
    for run, digest in zip(runs, ("a", ""), strict=True):
        run["data_digest"] = digest  # a record of earlier code has none
    assert cautions(findings(runs)) == []
    runs[1]["data_digest"] = "b"
    assert numbers(only(cautions(findings(runs)))) == ["2"]


def test_records_that_do_not_fit_are_named_with_their_reasons(findings):
    text = only(cautions(findings(seeds(), unfit={"abc": "curve.csv: there is none"})))
    assert numbers(text) == ["1"]
    assert text.endswith(": abc (curve.csv: there is none).")


def test_a_run_that_is_not_what_its_scheme_says(findings):
    said = "not synchronous: workers ended with other weights"
    text = only(cautions(findings(seeds(workers=2, certificate=said))))
    assert numbers(text) == ["2", "2"]
    assert text.endswith(f"{said}.")


def test_one_seed_is_said(findings):
    assert numbers(only(cautions(findings([make_run()])))) == ["1", "1"]


def test_when_and_where_images_per_second_were_measured(findings):
    started = "2026-01-02T03:04:05+00:00"
    runs = [make_run(seed=s, started=started, wall_seconds=60 * (s + 1)) for s in (0, 1)]
    text = only(cautions(findings(runs)))
    assert "(A Made-up Processor, 4 cores): 2 points within 2 minutes" in text
    assert "2026-01-02 03:04 UTC" in text


def test_a_super_linear_speed_up_comes_with_a_warning(findings):
    runs = [
        make_run(workers=workers, seed=s, images_per_second=1000 * speed)
        for workers, speed in ((1, 1), (2, 2.5))
        for s in (0, 1)
    ]
    text = only(cautions(findings(runs)))
    assert numbers(text)[:2] == ["1", "1"]
    assert text.endswith("efficiency sync_allreduce, 2 workers, batch_size 32: 125 %.")


def one_and_two(difference):
    """Points of one and of two workers, whose top-1 differs by `difference`."""
    return [
        make_run("sync_allreduce", workers, 32, seed, test_top1=0.9 + add)
        for workers, add in ((1, 0), (2, difference))
        for seed in (0, 1, 2)
    ]


def counted_as(findings):
    scaling = next(table for table in page_tables(findings) if table.name == "Scaling")
    return [row[scaling.columns.index("counts as")] for row in scaling.rows]


def test_a_broken_rule_is_a_red_line_with_its_numbers(tmp_path):
    folder = write_reports(tmp_path / "made", one_and_two(-0.03))
    findings = read_findings(folder)
    ((headline, text, affects),) = broken_rules(findings)
    assert affects
    assert numbers(headline) == ["1", "1", "1"]
    assert "workers 2, -3.00 points (-3.00 to -3.00, n = 3)" in text
    page = write_page(folder).read_text()
    assert f"<summary>✗ {headline}</summary>" in page
    assert f"<p>✗ {text}</p>" in page.split('<section class="broken">')[1]
    assert ".broken { border-color: var(--bad); background: var(--warn); color: var(--bad)" in page
    assert f"**✗ {text}**" in (folder / "README.md").read_text()
    assert counted_as(findings) == [MISSING, "throughput only"]


@pytest.mark.parametrize(("top1", "broken"), [(0.9, 0), (0.87, 1)])
def test_only_the_first_at_the_target_breaks_the_rule_on_accuracy(tmp_path, top1, broken):
    runs = [run for run in made_family() if run["scheme"] != "gossip" or run["workers"] == 1]
    folder = write_decided(tmp_path / "made", [*runs, *arm("gossip", 101, top1)])
    assert [rule.text.count("gossip") for rule in broken_rules(read_findings(folder))] == [
        1
    ] * broken


def test_what_touches_no_recommendation_is_a_caution_and_no_red_line(tmp_path):
    runs = [run | {"commit": ""} for run in one_and_two(0)]
    folder = write_reports(tmp_path / "made", runs)
    (rule,) = broken_rules(read_findings(folder))
    page = write_page(folder).read_text()
    assert not rule.affects
    assert 'class="broken"' not in page
    assert f"<li>{rule.text.split(chr(39))[0]}" in page  # up to an apostrophe


def test_without_a_broken_rule_there_is_no_red_line(reports, findings):
    assert 'class="broken"' not in reports(one_and_two(0))
    assert counted_as(findings(one_and_two(0))) == [MISSING, "at equal accuracy"]
