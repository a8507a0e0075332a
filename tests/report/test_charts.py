"""What charts draw is what the tables say, for the situation that is shown."""

import json
import math
import re
from dataclasses import replace

import pytest

from paceline.report.chart.accuracy_charts import target_chart
from paceline.report.chart.chart_style import COLOURS, scheme_colours, static_svg
from paceline.report.chart.decision_charts import decision_chart, map_chart
from paceline.report.findings import read_findings
from paceline.report.page import charts
from paceline.report.words import scheme_name, scheme_words, value_words
from tests.made_decisions import AXES, arm, made_family, two_arms, write_decided
from tests.tiny import CONF

GOSSIP = scheme_name("gossip")


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    folder = write_decided(tmp_path_factory.mktemp("family") / "made", made_family())
    return read_findings(folder)


@pytest.fixture(scope="module")
def drawn(family):
    return {chart.name: chart for chart in charts(family)}


def test_the_decision_is_drawn_as_it_is_in_the_table(family, drawn):
    table = family.concluded["decision"].query("workers == 4").set_index("scheme")
    rows = {row["scheme"]: row for row in drawn["decision"].rows}
    assert len(rows) == 5
    for scheme, row in table.iterrows():
        shown = rows[scheme_words({"scheme": scheme})]
        assert shown["rate"] == pytest.approx(row["images_per_second_mean"], rel=1e-4)
        assert shown["reached"] == f"{row['n_reached']} of 4 runs"
        if row["tier"] == "never":
            assert (shown["speedup"], shown["instead"]) == (None, "never (0 of 4 runs)")
        else:
            assert shown["speedup"] == pytest.approx(row["speedup_mean"], rel=1e-4)
            assert shown["low"] < shown["speedup"] < shown["high"]
        points = 100 * row["one_worker_top1_difference_mean"]
        assert shown["points"] == pytest.approx(points, abs=1e-4)
    order = [row["scheme"] for row in sorted(rows.values(), key=lambda row: row["place"])]
    assert order[-1] == scheme_name("async_parameter_server")
    assert set(order[:2]) == {GOSSIP, "local SGD"}


def test_accuracies_are_against_one_worker_where_there_is_one(family, drawn):
    assert "minus that of one worker" in drawn["decision"].caption
    decision = family.concluded["decision"].query("workers == 4")
    unknown = {name: math.nan for name in decision if name.startswith("one_worker_")}
    decided = family.concluded | {"decision": decision.assign(**unknown)}
    chart = decision_chart(replace(family, concluded=decided))
    assert "minus that of all-reduce" in chart.caption
    points = {row["scheme"]: row["points"] for row in chart.rows}
    mixed = decision.set_index("scheme").loc["mixed", "top1_difference_mean"]
    assert points["mixed groups"] == pytest.approx(100 * mixed, abs=1e-4)
    assert points["all-reduce"] is None


def test_the_front_is_what_nobody_else_had_reached_by_then(drawn):
    rows = drawn["time"].of("s0")
    for row in rows:
        before = [r["top1"] for r in rows if r["seconds"] < row["seconds"]]
        assert not row["front"] or row["top1"] > max(before, default=-1)
    assert {row["scheme"] for row in rows if row["front"] and row["top1"] > 0.6} <= {
        GOSSIP,
        "local SGD",
    }
    assert {row["target"] for row in rows} == {0.8}
    ahead = {row["scheme"] for row in rows if row["ahead"]}
    assert ahead == {row["scheme"] for row in rows if row["front"]}
    assert ahead < {row["scheme"] for row in rows}


def test_all_lines_over_workers_begin_at_one_worker(drawn):
    rows = drawn["scale"].of("s0")
    of_scheme = {row["scheme"]: [r for r in rows if r["scheme"] == row["scheme"]] for row in rows}
    first, last = of_scheme["all-reduce"]
    assert len(of_scheme) > 2
    for own in of_scheme.values():
        assert [row["workers"] for row in own] == [1, 4]
        assert [own[0][name] for name in ("mean", "speed")] == [first["mean"], first["speed"]]
        assert [row["ratio"] for row in own] == [
            1,
            pytest.approx(own[1]["speed"] / first["speed"], 0.01),
        ]
    assert len({own[-1]["mean"] for own in of_scheme.values()}) > 2
    assert last["speed"] != first["speed"]


def test_what_workers_cost_and_bring_is_drawn_as_it_is_in_the_table(tmp_path):
    """One worker needs 81 evaluations to the target, and two and four workers 31 each."""
    runs = [*arm("sync_allreduce", 801, 0.9, workers=1)]
    for workers, top1 in ((2, 0.895), (4, 0.88)):
        runs += [*arm("sync_allreduce", 301, top1, workers=workers)]
        runs += [*arm("gossip", None if workers == 4 else 201, 0.85, workers=workers)]
    found = read_findings(write_decided(tmp_path / "made", runs))
    drawn = target_chart(found)
    rows = {(row["scheme"], row["workers"]): row for row in drawn.of("s0")}
    one = rows[GOSSIP, 1]
    assert (one["points"], one["speedup"], one["beside"]) == (0, 1, 1)
    assert one["images"] == one["few"] == one["many"]
    table = found.concluded["decision"].set_index(["scheme", "workers"])
    for workers in (2, 4):
        row, shown = table.loc[("sync_allreduce", workers)], rows["all-reduce", workers]
        points = 100 * row["one_worker_top1_difference_mean"]
        assert shown["points"] == pytest.approx(points, abs=1e-4)
        assert shown["points_low"] <= shown["points"] <= shown["points_high"]
        assert shown["speedup"] == pytest.approx(row["speedup_mean"], rel=1e-4)
        assert shown["many"] == pytest.approx(workers * shown["few"], rel=1e-4)
        assert shown["images"] < shown["few"]
    missed = rows[GOSSIP, 4]
    assert (missed["images"], missed["speedup"]) == (None, None)
    places = [row["beside"] for row in drawn.of("s0") if row["workers"] == 4]
    assert len(set(places)) == 2
    assert static_svg(drawn, "s0").startswith("<svg")


def test_what_is_lost_or_far_is_drawn_as_well(tmp_path):
    """Diverged runs have a cross; far differences do not hide those near the margin."""
    optimizer = "model/optimizer"
    runs = arm("sync_allreduce", 801, 0.9, workers=1, **{optimizer: "sgd"})
    for workers in (2, 4):
        runs += arm("sync_allreduce", None, 0.7, workers=workers, **{optimizer: "sgd"})
        own = arm("gossip", None, 0.9, workers=workers, **{optimizer: "sgd"})
        runs += [run | {"status": "diverged", "reason": "chance"} for run in own]
    lars = arm("sync_allreduce", None, 0.89, workers=4, **{optimizer: "lars"})
    runs += [run | {"key": run["key"] + "lars"} for run in lars]
    axes = ["scheme", "workers", "batch_size", "seed", optimizer]
    drawn = target_chart(read_findings(write_decided(tmp_path / "made", runs, axes=axes)))
    rows = {(row["scheme"], row["workers"]): row for row in drawn.of("s0")}
    assert (rows[GOSSIP, 4]["points"], rows[GOSSIP, 4]["diverged"]) == (None, 4)
    assert ("all-reduce, LARS", 1) not in rows
    assert rows["all-reduce, LARS", 4]["points"] == pytest.approx(-1, abs=1e-3)
    (panel,) = drawn.spec["concat"]  # nobody reached the target
    assert panel["layer"][1]["encoding"]["y"]["scale"]["type"] == "symlog"
    assert "Crosses" in drawn.caption
    assert "\u00d7" in static_svg(drawn, "s0")


def test_images_to_the_target_are_the_fewest_of_all_budgets(tmp_path):
    """With 5 epochs, 4 workers miss the target; with 20, they need more images than with 10."""
    axes = ["scheme", "workers", "batch_size", "seed", "training.epochs", "training.rate"]
    known = {"training.epochs": 5, "training.rate": "tuned"}
    runs = arm("sync_allreduce", 801, 0.9, workers=1, **known)
    for workers, crossing in ((2, 301), (4, None)):
        runs += arm("sync_allreduce", crossing, 0.89, workers=workers, **known)
        ruled = arm("sync_allreduce", None, 0.8, workers=workers, **known)
        runs += [r | {"key": r["key"] + "rule", "training.rate": "by_rule"} for r in ruled]
    for epochs, crossing in ((10, 401), (20, 501)):
        more = arm("sync_allreduce", crossing, 0.9, **known | {"training.epochs": epochs})
        runs += [run | {"key": f"{run['key']}{epochs}"} for run in more]
    found = read_findings(write_decided(tmp_path / "made", runs, axes=axes))
    drawn = target_chart(found)
    assert "with that budget of 5, 10, 20 epochs which needs the fewest" in drawn.caption
    table = found.concluded["configurations"].set_index(["workers", "training.epochs"])
    shown = drawn.of(drawn.rows[0]["situation"])
    rows = {(row["scheme"], row["workers"]): row for row in shown}
    fewest = table.loc[(4, 10), "target_samples_mean"]
    assert rows["all-reduce", 4]["images"] == pytest.approx(fewest, rel=1e-4)
    assert rows["all-reduce", 4]["points"] == pytest.approx(-1, abs=1e-3)
    by_rule = [rows["all-reduce, rate by rule", workers] for workers in (2, 4)]
    assert [row["points"] for row in by_rule] == pytest.approx([-10, -10], abs=1e-3)
    assert [row["images"] for row in by_rule] == [None, None]
    assert [row for row in shown if row["by_rule"]] == by_rule


def test_a_file_shows_one_situation_alone(tmp_path):
    runs = [*arm("sync_allreduce", 801, 0.9, workers=1)]
    for workers in (2, 4):
        runs += [*arm("sync_allreduce", 301, 0.9, workers=workers)]
        runs += [*arm("gossip", 201, 0.9, workers=workers)]
    folder = write_decided(tmp_path / "made", runs)
    chart = decision_chart(read_findings(folder))
    assert {row["situation"] for row in chart.rows} == {"s0", "s1"}
    rates = [re.findall(r">(\d+)</text>", static_svg(chart, name)) for name in ("s0", "s1")]
    assert "400" in rates[0]
    assert "200" in rates[1]
    assert "400" not in rates[1]


def test_a_map_of_two_settings_names_the_best_and_counts_who_is_tied(tmp_path):
    slow = "cluster.slow_workers"
    runs = [run | {slow: 0} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    for workers in (2, 4, 8):
        for late in (0, 1):
            first = 201 if late else 401
            runs += two_arms((301, first), workers, **{slow: late})
    folder = write_decided(tmp_path / "made", runs, axes=[*AXES, slow])
    chart = map_chart(read_findings(folder))
    coloured = chart.spec["spec"]["layer"][1]["encoding"]["color"]["legend"]["values"]
    assert set(coloured) == {row["scheme"] for row in chart.rows}
    assert len(chart.rows) == 6
    named = {(row["across"], row["down"]): row["scheme"] for row in chart.rows}
    late = {name for place, name in named.items() if value_words(slow, 1) in place}
    even = {name for place, name in named.items() if value_words(slow, 0) in place}
    assert (late, even) == ({GOSSIP}, {"all-reduce"})


def map_of_links(folder, lost=0, **about):
    """`lost`: runs of one worker that do not get there."""
    link = "cluster.link.bandwidth"
    runs = [run | {link: None} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    for run in runs[:lost]:
        run["crossing"] = None
    for workers in (2, 4):
        for bandwidth, crossing in ((None, 201), (1e9, 301), (1e8, 901)):
            runs += two_arms((crossing + 50, crossing), workers, **{link: bandwidth})
    return map_chart(read_findings(write_decided(folder, runs, axes=[*AXES, link], **about)))


def test_a_map_names_nothing_to_use_where_runs_of_one_worker_are_lost(tmp_path):
    drawn = map_of_links(tmp_path / "made", lost=1)
    cells = {(row["scheme"], row["speed"], row["others"]) for row in drawn.rows}
    assert cells == {("", "unknown:", "runs missed it")}
    width, height = re.search(r' width="([^"]+)" height="([^"]+)"', static_svg(drawn)).groups()
    assert max(float(width), float(height)) < 2000  # with an empty legend it was 1e308


def test_a_map_has_one_worker_where_no_scheme_is_faster_and_the_fastest_network_last(tmp_path):
    chart = map_of_links(tmp_path / "made")
    slow = [row for row in chart.rows if row["scheme"] == "one worker"]
    assert {row["words"].partition(", ")[2] for row in slow} == {"links of 800 Mbit/s"}
    assert [row["speed"] for row in slow] == ["one worker"] * 2
    assert [row["others"] for row in slow] == ["0.89 at best"] * 2
    order = [value_words("cluster.link.bandwidth", rate) for rate in (1e8, 1e9, None)]
    assert f'"sort": {json.dumps(order)}' in json.dumps(chart.spec)


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
        assert scheme_colours([GOSSIP, name] if name != GOSSIP else [name])[-1] == colour
    assert set(COLOURS) <= set(schemes)
