"""The answer is what decision.csv says: which scheme, with which numbers, and which others.

It has a row for each situation: what a user has.
"""

from types import SimpleNamespace

import pandas as pd
import pytest

from paceline.report.answer import ONE, answer, choice, rule
from paceline.report.findings import of_several_schemes, read_findings, situations
from paceline.report.number_format import MISSING
from paceline.report.summary import one_line
from paceline.report.words import scheme_name
from tests.made_decisions import AXES, arm, write_decided
from tests.made_findings import decided, made_findings, numbers, spread
from tests.made_reports import make_run

FASTER = (3.0, 2.0, 4.0)


def cells(findings):
    """The rows of the answer, by the headings of its columns."""
    table = answer(findings)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def row_of(*rows, **findings):
    (row,) = cells(made_findings(rows, **findings))
    return row


def test_one_worker_is_used_where_no_scheme_is_faster():
    row = row_of(decided("gossip", "not faster than one worker", (0.5, 0.4, 0.6)))
    assert (row["use"], row["speed-up of the whole run"]) == (f"= {ONE}", "0.50")
    assert row_of(decided("gossip", "not trained")) == {
        "workers": "4",
        "use": "✗ no run finished",
    }


def test_marks_are_of_large_losses_and_of_speed_ups_above_the_number_of_workers():
    lost = spread("one_worker_top1_difference", -0.03, -0.0475, -0.0125)
    row = row_of(decided("gossip", "use", (4.2, 4.1, 4.3), **lost))
    assert (row["speed-up of the whole run"], row["minus one worker's, points"]) == (
        "4.2 !",
        "-3.00 ± 1.75 ✗",
    )
    unsure = spread("one_worker_top1_difference", -0.03, -0.06, 0.0)
    assert row_of(decided("gossip", "use", FASTER, **unsure))["minus one worker's, points"] == (
        "-3.00 ± 3.00"
    )
    marked, plain = (made_findings([decided("gossip", "use", FASTER, **own)]) for own in (lost, {}))
    texts = [rule(each, answer(each)) for each in (marked, plain)]
    assert ["✗" in text for text in texts] == [True, False]


def test_a_number_that_seeds_do_not_tell_is_not_printed():
    """But images/s were measured."""
    few = spread("speedup", 1.3, 0.4, 4.1, n=2) | spread("images_per_second", 100.0, 31, 320, 2)
    row = row_of(decided("gossip", "use", **few))
    assert row["speed-up of the whole run"] == "too few seeds (2)"
    assert row["images/s"] == "100, too few seeds (2)"
    told = spread("speedup", 1.3, 0.4, 3.9, n=2)  # ends that differ by less than ten times
    assert row_of(decided("gossip", "use", **told))["speed-up of the whole run"] == "1.3"


def test_only_what_tuned_rates_and_enough_seeds_show_is_marked_as_shown():
    both = [decided("gossip", "use", FASTER), decided("mixed", "less accurate", FASTER)]
    few = decided("gossip", "use", FASTER, top1_n=2)
    one = made_findings([decided("gossip", "not faster than one worker", FASTER, top1_n=2)])
    assert "Without ✓" not in rule(one, answer(one))
    found = [made_findings(both), made_findings([few]), made_findings(both, rate=None)]
    assert [answer(each).rows[0][1].startswith("✓") for each in found] == [True, False, False]
    assert ["Without ✓" in rule(each, answer(each)) for each in found] == [False, True, True]


def test_rates_by_rule_are_no_answer_where_tuned_ones_are_there():
    rate, axes = "training.rate", ("scheme", "workers", "training.rate")
    rows = [decided("gossip", "use", FASTER, **{rate: value}) for value in ("tuned", "by_rule")]
    assert len(cells(made_findings(rows, axes=axes))) == 1
    assert len(cells(made_findings(rows[1:], axes=axes))) == 1


def test_split_workers_are_compared_by_their_processes(tmp_path):
    shards, split = "model.shards", "model.split"
    runs = [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 801, 0.9, workers=1)]
    runs += [run | {shards: 1, split: "auto"} for run in arm("sync_allreduce", 401, 0.9, 2)]
    divided = arm("sync_allreduce", 201, 0.9, workers=1)
    split_runs = {shards: 2, split: "auto", "images_per_second": 500.0}
    runs += [run | split_runs | {"key": f"{run['key']}d"} for run in divided]
    (row,) = cells(read_findings(write_decided(tmp_path / "m", runs, axes=[*AXES, shards, split])))
    assert row["processes"] == "2"
    assert row["use"] == "✓ all-reduce, 1 worker of 2 processes, auto"


@pytest.mark.parametrize("by", ["top-1", "images/s"])
def test_a_study_without_schemes_to_choose_from_compares_all_configurations(
    findings, by, monkeypatch
):
    """By top-1, or by images/s if no run was evaluated, whose budget is then not named."""
    axes = ["scheme", "workers", "batch_size", "training.epochs", "seed"]
    scores = dict.fromkeys(("top1", "test_top1", "validation_loss")) if by == "images/s" else {}
    runs = [
        make_run(batch_size=batch, seed=seed, **{"training.epochs": epochs}) | scores
        for batch, epochs in {32: 1, 128: 2}.items()
        for seed in (0, 1)
    ]
    found = findings(runs, axes=axes)
    first, second = cells(found)
    assert [row["images per worker and step"] for row in (first, second)] == ["32", "128"]
    assert ("epochs" in first) == (by == "top-1")
    name = "test_top1" if by == "top-1" else "images_per_second"
    own = [run[name] for run in runs]
    expected = 50 * (sum(own[2:]) - sum(own[:2]))
    if by == "images/s":
        expected = (own[2] * own[3] / own[0] / own[1]) ** 0.5
    assert first["against the first"] == MISSING
    assert float(second["against the first"]) == pytest.approx(expected, abs=0.05)
    values = [row[by].removesuffix(" %") for row in (first, second)]
    said = numbers(one_line(found))
    assert [each for each in said if each in values] == values
    assert {"32", "128"} <= {*said}
    monkeypatch.setattr("paceline.report.answer._MOST_NAMED", 1)
    best = first if sum(own[:2]) > sum(own[2:]) else second
    assert numbers(one_line(found))[0] == best["images per worker and step"]


def test_the_choice_has_the_rows_of_those_as_fast():
    rows = [decided("gossip", "as fast"), decided("mixed", "use"), decided("local_sgd", "slower")]
    chosen = choice(pd.DataFrame(rows))
    assert (chosen.use, list(chosen.as_fast["scheme"])) == (scheme_name("mixed"), ["gossip"])


def of_rows(rows, axes):
    decision = pd.DataFrame(rows)
    tables = SimpleNamespace(axes=axes, facets=axes[1:], runs=decision, about={"axes": axes})
    return SimpleNamespace(tables=tables, concluded={"decision": decision})


def row_with(workers, scheme="gossip", **settings):
    return {"kind": "virtual", "data": "made", "workers": workers, "scheme": scheme} | settings


def test_a_situation_says_only_what_varies_and_no_value_is_a_value():
    limit = "cluster.link.bandwidth"
    rows = [row_with(2, **{limit: value}) for value in (None, 1e6)]
    words = [each.words for each in situations(of_rows(rows, ["workers", limit]))]
    assert [text.partition(", ")[0] for text in words] == ["2 workers", "2 workers"]
    assert len(set(words)) == 2
    (alone,) = situations(of_rows(rows[:1], ["workers", limit]))
    assert alone.words == "2 workers"
    # a cluster that follows from the kind of time is not said
    rows = [row_with(2, cluster="virtual"), row_with(2, cluster="local") | {"kind": "measured"}]
    found = situations(of_rows(rows, ["workers", "cluster"]))
    assert {each.words for each in found} == {"2 workers (virtual)", "2 workers (measured)"}


def test_tuned_rates_and_few_workers_come_first():
    rate = "training.rate"
    rows = [row_with(n, **{rate: value}) for value in ("by_rule", "tuned") for n in (1, 8, 4)]
    found = situations(of_rows(rows, ["workers", rate]))
    assert [each.size for each in found] == [1, 4, 8] * 2
    assert [each.values[rate] for each in found] == ["tuned"] * 3 + ["by_rule"] * 3


def test_one_scheme_or_one_worker_is_no_choice():
    schemes = ("sync_allreduce", "gossip")
    rows = [row_with(workers, scheme) for workers in (1, 2, 4) for scheme in schemes][:-1]
    assert [each.size for each in of_several_schemes(of_rows(rows, ["workers"]))] == [2]
