"""What charts draw is what the tables say."""

import math

import pytest

from paceline.report.chart.chart_style import COLOURS, scheme_colours, static_svg
from paceline.report.chart.study_charts import target_chart, time_chart
from paceline.report.findings import read_findings
from paceline.report.page import charts
from paceline.report.spread import spread_words
from paceline.report.words import scheme_name, value_words
from tests.made_decisions import AXES, arm, made_family, two_arms, write_decided
from tests.made_findings import numbers
from tests.made_reports import digest
from tests.tiny import CONF


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = write_decided(tmp_path_factory.mktemp("family") / "made", made_family())
    return {chart.name: chart for chart in charts(read_findings(folder))}


def test_all_lines_over_workers_begin_at_one_worker(drawn):
    rows = drawn["scale"].rows
    of_scheme = {row["scheme"]: [r for r in rows if r["scheme"] == row["scheme"]] for row in rows}
    first, _ = of_scheme["all-reduce"]
    assert len(of_scheme) == 5
    for own in of_scheme.values():
        assert [row["workers"] for row in own] == [1, 4]
        assert own[0]["speedup"] == 1
        assert own[1]["speedup"] == pytest.approx(own[1]["rate"] / own[0]["rate"], rel=0.01)
    assert of_scheme[scheme_name("local_sgd")][0]["top1"] == first["top1"]
    assert len({own[-1]["top1"] for own in of_scheme.values()}) > 2


def test_the_settings_with_the_most_numbers_of_workers_are_drawn(tmp_path):
    epochs = "training.epochs"
    runs = [run | {epochs: 1} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    for workers, budget in ((4, 1), (8, 1), (4, 2)):
        runs += two_arms((301, 201), workers, **{epochs: budget, "seconds": 1000.0 * budget})
    found = read_findings(write_decided(tmp_path / "made", runs, axes=[*AXES, epochs]))
    drawn = {chart.name: chart for chart in charts(found)}
    assert {row["workers"] for row in drawn["scale"].rows} == {1, 4, 8}
    assert drawn["scale"].caption.endswith("Here: 1 epoch.")
    own = [row for row in time_chart(found).rows if row["workers"] == "4"]
    assert {(row["scheme"], row["seconds"]) for row in own} == {
        (scheme_name(each), seconds)
        for each in ("sync_allreduce", "gossip")
        for seconds in (1000, 2000)
    }


def test_lines_over_budgets_are_drawn_for_each_speed_of_the_links(tmp_path):
    link, epochs = "cluster.link.bandwidth", "training.epochs"
    runs = [
        run | {link: bandwidth, epochs: budget, "seconds": slower * budget}
        for bandwidth, slower in ((None, 100.0), (1e9, 300.0))
        for budget in (1, 2)
        for run in two_arms((301, 301), 4, bandwidth=bandwidth, budget=budget)
    ]
    drawn = time_chart(
        read_findings(write_decided(tmp_path / "a", runs, axes=[*AXES, link, epochs]))
    )
    panels = [value_words(link, bandwidth) for bandwidth in (None, 1e9)]
    assert drawn.spec["facet"]["sort"] == panels
    for scheme in ("sync_allreduce", "gossip"):
        own = [row for row in drawn.rows if row["scheme"] == scheme_name(scheme)]
        assert [row["seconds"] for row in own] == [100, 200, 300, 600]
        assert [row["panel"] for row in own] == [panels[0]] * 2 + [panels[1]] * 2
    assert drawn.spec["spec"]["encoding"]["color"]["field"] == "workers"


SLOW, EPOCHS = "cluster.slow_workers", "training.epochs"
EPOCH = 96_000  # images
# Times as many images as one worker; 16 workers by the seed, so that it is not shown to be few more
NEEDED = {1: [1] * 4, 4: [1.1] * 4, 16: [1.1, 1.1, 1.1, 1.4], 64: [3] * 4}


def of_batches(folder, rows, seeds=4, axis=EPOCHS):
    """The findings of a study whose `rows` are (scheme, workers, budgets, stragglers, top-1 lost).

    `seeds`: of several workers. An epoch twice as long, or half of the images needed, gives two
    points of top-1: 4 epochs of one worker 90 %, and half of them a target of 88 %.
    """
    runs = [
        run | {axis: budget, SLOW: slow, "key": digest(run["key"], budget, slow)[:12]}
        for scheme, workers, budgets, slow, lost in rows
        for budget in budgets
        for run in arm(scheme, None, -lost, workers)[: seeds if workers > 1 else None]
    ]
    for run in runs:
        needed = NEEDED[run["workers"]][run["seed"]]
        run["top1"] += 0.9 + 0.02 * math.log2(run[axis] / needed / 4)
        run |= {"test_top1": run["top1"], "samples": EPOCH * run[axis]}
        run["top1"] = 0.9  # of validation images
        waits = run["scheme"] == "sync_allreduce"
        run["images_per_second"] *= (0.4 if run[SLOW] else 1) if waits else 1.25
    about = {"axes": [*AXES, axis, SLOW], "target": None}
    return read_findings(write_decided(folder, runs, **about))


BUDGETS = (1, 2, 4)
WAITING = [("sync_allreduce", workers, BUDGETS, 0, 0) for workers in (1, 4, 16, 64)]
FREE = [("async_parameter_server", n, (1, 2), 0, n / 1000) for n in (4, 16)]


def test_steps_to_targets_are_drawn_and_a_miss_at_the_largest_budget(tmp_path):
    drawn = target_chart(of_batches(tmp_path / "a", [*WAITING, FREE[1]]))
    assert [(row["scheme"], row["batch"], row["missed"]) for row in drawn.rows[:5]] == [
        *(("all-reduce", 32, False), ("all-reduce", 128, False), ("all-reduce", 512, False)),
        *(("asynchronous SGD", 512, True), ("all-reduce", 2048, True)),
    ]
    one, four, sixteen, free, most = drawn.rows[5:]
    assert one["steps_mean"] == one["perfect"] == pytest.approx(2 * EPOCH / 32, rel=1e-4)
    assert four["steps_mean"] == pytest.approx(1.1 * 2 * EPOCH / 128, rel=1e-4)
    assert four["perfect"] == pytest.approx(2 * EPOCH / 128, rel=1e-4)
    assert sixteen["steps_low"] < sixteen["steps_mean"] < sixteen["steps_high"]
    assert (free["missed"], free["images"], free["reached"]) == (True, 2 * EPOCH, "0 of 4 runs")
    assert (most["missed"], most["steps_mean"]) == (True, 4 * EPOCH / 2048)
    assert static_svg(drawn).startswith("<svg")


def test_budgets_may_be_of_images_and_one_worker_may_have_more_seeds(tmp_path):
    epochs = of_batches(tmp_path / "a", WAITING, seeds=3)
    images = of_batches(tmp_path / "b", WAITING, seeds=3, axis="training.samples")
    assert target_chart(images).rows == target_chart(epochs).rows
    assert "1.1 (1.1 to 1.1)" in spread_words(epochs)
    assert spread_words(of_batches(tmp_path / "c", WAITING, seeds=2)) == ""


def test_a_study_with_one_budget_draws_no_steps_to_a_target(tmp_path):
    rows = [(scheme, workers, (4,), *rest) for scheme, workers, _, *rest in WAITING]
    assert target_chart(of_batches(tmp_path / "a", rows)) is None


def test_a_sentence_says_what_larger_batches_need_and_what_not_waiting_costs(tmp_path):
    beside = [("sync_allreduce", 16, (1,), 1, 0), ("async_parameter_server", 16, (1,), 1, 0.05)]
    assert numbers(spread_words(of_batches(tmp_path / "a", [*WAITING, *FREE, *beside]))) == [
        *("2", "-1", "32", "1.1", "1.1", "1.1", "128"),
        *("1.2", "0.96", "1.4", "512", "384,000", "2,048"),  # in no budget with 2,048
        *("128", "25", "1"),  # shown to need at most 25 % more
        "1",  # epoch, the budget with the most to say
        *("4", "-0.4", "0.3", "-1", "1.2", "16", "-1.6", "0.3", "-1", "1.2"),
        *("16", "-5.0", "0.3", "-1", "3.1"),  # beside a straggler
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [*WAITING[1:], *FREE],
        [*WAITING[:2], *FREE],
        [*WAITING[:2], *(("sync_allreduce", n, (4,), 0, 0) for n in (16, 64)), *FREE],
        [("sync_allreduce", 1, (4,), 0, 0), *WAITING[1:], *FREE],
        [("sync_allreduce", 1, (3, 4), 0, 0), *WAITING[1:], *FREE],
    ],
    ids=["no one worker", "two batches", "one budget", "one worker's is one", "no budget so small"],
)
def test_no_sentence_is_said_of_a_study_that_does_not_tell(tmp_path, rows):
    assert spread_words(of_batches(tmp_path / "a", rows)) == ""


def test_the_sentence_of_a_study_that_waits_is_of_batches_alone(tmp_path):
    assert len(numbers(spread_words(of_batches(tmp_path / "a", WAITING)))) == 16


def luminance(colour):
    """Relative luminance of WCAG 2."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_every_scheme_has_a_name_and_one_colour_whoever_is_beside_it():
    schemes = sorted(path.stem for path in (CONF / "scheme").glob("*.yaml"))
    names = [scheme_name(scheme) for scheme in schemes]
    assert len(set(names)) == len(names)
    assert not any(
        scheme == name for scheme, name in zip(schemes, names, strict=True) if "_" in scheme
    )
    together = scheme_colours([*names, "of my own", "of yours"])
    assert len(set(together)) == len(names) + 2
    for name, colour in zip([*names, "of my own", "of yours"], together, strict=True):
        assert scheme_colours(list(dict.fromkeys([names[0], name])))[-1] == colour
    assert set(COLOURS) <= set(schemes)


@pytest.mark.parametrize("page", ["#ffffff", "#16181b"])
def test_colours_stand_out_from_a_light_and_a_dark_page(page):
    for colour in COLOURS.values():
        high, low = sorted((luminance(colour), luminance(page)), reverse=True)
        assert (high + 0.05) / (low + 0.05) > 2.5
