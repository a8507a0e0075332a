"""What charts draw is what the tables say."""

import pytest

from paceline.report.chart.chart_style import COLOURS, scheme_colours, static_svg
from paceline.report.chart.study_charts import target_chart, time_chart
from paceline.report.findings import read_findings
from paceline.report.page import charts
from paceline.report.spread import spread_words
from paceline.report.words import scheme_name, value_words
from tests.made_decisions import AXES, arm, made_family, two_arms, write_decided
from tests.made_findings import numbers
from tests.made_reports import digest, write_points
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


def test_a_target_is_drawn_with_the_budget_that_is_ready_first_and_a_miss_at_the_largest(tmp_path):
    epochs = "training.epochs"
    runs = [run | {epochs: 1} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    for budget, crossings in ((1, (401, None)), (2, (301, None))):
        longer = {epochs: budget, "samples": 96000 * budget, "seconds": 1000.0 * budget}
        runs += two_arms(crossings, 4, **longer)
    found = read_findings(write_decided(tmp_path / "made", runs, axes=[*AXES, epochs]))
    drawn = target_chart(found)
    rows = {(row["scheme"], row["workers"]): row for row in drawn.rows}
    one, first, missed = (
        rows["all-reduce", 1],
        rows["all-reduce", 4],
        rows[scheme_name("gossip"), 4],
    )
    assert (one["batch"], first["batch"]) == (32, 128)
    assert one["steps"] == one["perfect"] == pytest.approx(4 * first["perfect"], rel=1e-4)
    assert 128 * first["steps"] == pytest.approx(first["images"], rel=1e-4)
    assert 30 < first["images"] < 35
    assert not first["missed"]
    assert (missed["missed"], missed["steps"], missed["images"]) == (True, 1500, 192000)
    assert static_svg(drawn).startswith("<svg")


def test_a_target_below_one_worker_has_others_beside_it(tmp_path):
    lower = {1: 0, 4: 0.007}  # of the top-1 by the number of workers
    runs = [run for workers in lower for run in arm("sync_allreduce", None, 0.9, workers)]
    target = {"metric": "top1", "below_baseline": 0.01}
    folder = write_decided(tmp_path / "made", [dict(run) for run in runs], target=target)
    curve = [
        {"key": run["key"], "samples": 960 * n, "updates": n, "seconds": 10.0 * n}
        | {"top1": min(0.9, 0.8 + n / 900) - lower[run["workers"]]}
        for run in runs
        for n in range(1, 101)
    ]
    write_points(folder, {"curve": curve})
    rows = target_chart(read_findings(folder)).rows
    assert [row["panel"].partition(":")[0] for row in rows[::2]] == ["89.5 %", "89.0 %", "88.0 %"]
    assert [row["steps"] for row in rows] == [
        960 * n / images
        for first, second in ((86, 100), (81, 88), (72, 79))
        for n, images in ((first, 32), (second, 128))
    ]
    assert [row["missed"] for row in rows] == [False, True] + 4 * [False]


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


def spread_of(folder, rows, alone=32):
    """The sentence on a study whose `rows` are (scheme, workers, budgets, stragglers, top-1).

    `alone`: images of a step of one worker.

    Of 100 evaluations all-reduce reaches the target first at the 40th by one worker. With 16
    workers a seed needs 12 more than the others, so that it is not shown to need few more.
    """
    reached = {1: 40, 4: 44, 8: 44, 16: 44, 64: 101}
    runs = [
        run | {EPOCHS: budget, SLOW: slow, "key": digest(run["key"], budget, slow)[:12]}
        for scheme, workers, budgets, slow, top1 in rows
        for budget in budgets
        for run in arm(scheme, None, top1, workers)
    ]
    for run in runs:
        run["batch_size"] = alone if run["workers"] == 1 else 32
        run["samples"] *= run[EPOCHS]
        waits = run["scheme"] == "sync_allreduce"
        run["images_per_second"] *= (0.4 if run[SLOW] else 1) if waits else 1.25
    known = {"axes": [*AXES, EPOCHS, SLOW], "target": {"metric": "top1", "below_baseline": 0.01}}
    folder = write_decided(folder, [dict(run) for run in runs], **known)
    late = {run["key"] for run in runs if run["workers"] == 16 and run["seed"] == 0}
    curve = [
        {"key": run["key"], "samples": 960 * n * run[EPOCHS], "updates": n, "seconds": 10.0 * n}
        | {"top1": 0.9 if n >= reached[run["workers"]] + 12 * (run["key"] in late) else 0.5}
        for run in runs
        for n in range(1, 101)
    ]
    write_points(folder, {"curve": curve})
    return spread_words(read_findings(folder))


WAITING = [("sync_allreduce", workers, (1, 2), 0, 0.9) for workers in (1, 4, 16, 64)]
FREE = [("async_parameter_server", n, (1, 2), 0, 0.9 - n / 1000) for n in (4, 16)]


def test_a_sentence_says_what_larger_batches_need_and_what_not_waiting_costs(tmp_path):
    beside = [("sync_allreduce", 16, (1,), 1, 0.9), ("async_parameter_server", 16, (1,), 1, 0.85)]
    assert numbers(spread_of(tmp_path / "a", [*WAITING, *FREE, *beside])) == [
        *("128", "25", "1", "-1", "1"),  # shown to need at most 25 % more, to a point of top-1
        *("1.2", "0.96", "1.4", "512", "2", "2,048"),  # perhaps with 512; in no budget with 2,048
        "1",  # epoch, the budget with the most to say
        *("4", "-0.4", "0.3", "-1", "1.2", "16", "-1.6", "0.3", "-1", "1.2"),
        *("16", "-5.0", "0.3", "-1", "3.1"),  # beside a straggler
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [*WAITING[1:], *FREE],
        [*WAITING[:2], *FREE],
        [*WAITING[:3], ("sync_allreduce", 64, (2,), 0, 0.9), *FREE],
    ],
    ids=["no one worker", "two batches", "a batch of one budget"],
)
def test_no_sentence_is_said_of_a_study_that_does_not_tell(tmp_path, rows):
    assert spread_of(tmp_path / "a", rows) == ""


def test_no_sentence_is_said_where_one_worker_has_another_batch_than_each_of_several(tmp_path):
    rows = [*WAITING, ("sync_allreduce", 8, (1, 2), 0, 0.9), *FREE]
    assert spread_of(tmp_path / "a", rows, alone=64) == ""


def test_the_sentence_of_a_study_that_waits_is_of_batches_alone(tmp_path):
    assert numbers(spread_of(tmp_path / "a", WAITING))[-1] == "2,048"


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
