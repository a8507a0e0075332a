"""Situations: what a user has, one for each answer."""

from types import SimpleNamespace

import pandas as pd

from paceline.report.findings import of_several_schemes, situations


def made(rows, axes):
    decision = pd.DataFrame(rows)
    tables = SimpleNamespace(axes=axes, facets=axes[1:], runs=decision, about={"axes": axes})
    return SimpleNamespace(tables=tables, concluded={"decision": decision})


def row(workers, scheme="gossip", **settings):
    return {"kind": "virtual", "data": "made", "workers": workers, "scheme": scheme} | settings


def test_only_what_varies_is_said_and_no_value_is_a_value():
    limit = "cluster.link.bandwidth"
    found = situations(made([row(2, **{limit: None}), row(2, **{limit: 1e6})], ["workers", limit]))
    words = sorted(each.words for each in found)
    assert [text.partition(", ")[0] for text in words] == ["2 workers", "2 workers"]
    assert len(set(words)) == 2
    (alone,) = situations(made([row(2, **{limit: None})], ["workers", limit]))
    assert alone.words == "2 workers"


def test_a_cluster_that_follows_from_the_kind_of_time_is_not_said():
    rows = [row(2, cluster="virtual"), row(2, cluster="local") | {"kind": "measured"}]
    found = situations(made(rows, ["workers", "cluster"]))
    assert {each.words for each in found} == {"2 workers (virtual)", "2 workers (measured)"}


def test_tuned_rates_and_few_workers_come_first():
    rows = [
        row(workers, **{"training.rate": rate})
        for rate in ("by_rule", "tuned")
        for workers in (1, 8, 4)
    ]
    found = situations(made(rows, ["workers", "training.rate"]))
    assert [each.size for each in found] == [1, 4, 8] * 2
    assert [each.values["training.rate"] for each in found] == ["tuned"] * 3 + ["by_rule"] * 3


def test_one_scheme_or_one_worker_is_no_choice():
    schemes = ("sync_allreduce", "gossip")
    rows = [row(workers, scheme) for workers in (1, 2, 4) for scheme in schemes][:-1]
    assert [each.size for each in of_several_schemes(made(rows, ["workers"]))] == [2]
