"""The numbers that README.md states by hand are those of the committed tables, in this order.

Its wording is free. What `paceline report` writes is tested in report/test_readme_answer.py.
"""

import json
from dataclasses import replace

import pandas as pd
import pytest

from paceline.analysis.configuration import groups
from paceline.analysis.decision import decision
from paceline.analysis.tables import read_tables
from paceline.report.choice import choice
from tests.made_findings import numbers
from tests.tiny import CONF

REPORTS = CONF.parent / "reports"
PARTS = (CONF.parent / "README.md").read_text().replace("\n- ", "\n\n- ").split("\n\n")
OTHERS = ("schemes", "accuracy_vs_workers", "when_asynchronous")
LINK = "cluster.link.bandwidth"


def stated(*words):
    """Numbers of the only paragraph or list entry of README.md with these words."""
    (found,) = [part for part in PARTS if all(word in part for word in words)]
    return [float(each.replace(",", "").lstrip("±")) for each in numbers(found)]


def table(study, name="runs.csv"):
    return pd.read_csv(REPORTS / study / name)


def about(study):
    return json.loads((REPORTS / study / "study.json").read_text())


def only(values):
    (value,) = set(values)
    return value


def test_networks_machine_budget_and_time():
    of_quick, gpus = table("example"), about("accuracy_vs_workers")["settings"]
    settings = [about(study)["settings"] for study in ("schemes", "when_asynchronous")]
    jitter, slow, num_bytes = (
        only(each[name] for each in settings)
        for name in ("cluster.step_jitter", "cluster.slow_factor", "workload.num_bytes")
    )
    runs = {study: table(study) for study in OTHERS}
    links = [runs[study][LINK].dropna().unique() for study in OTHERS[1:]]
    networks = (each["num_parameters"].dropna() for each in runs.values())
    trials = []
    for study in OTHERS:
        tuning = table(study, "tuning.csv")
        names = ("scheme", "workers", "scheme.backup_workers")
        axes = [name for name in names if name in tuning]
        trials.append(tuning.groupby(axes, dropna=False).size().min())
    assert stated("AMD EPYC", "K80") == [
        only(of_quick["num_parameters"]),
        only(about(study)["settings"]["training.epochs"] for study in OTHERS),
        only(number for each in networks for number in each),
        only(trials),
        jitter,
        slow,
        num_bytes / 1e6,
        0,
        *(round(seconds, 2) for seconds in sorted(num_bytes / links[1])),
        -50,  # of ResNet-50
        gpus["cluster.workers_per_node"],
        80,  # of K80
        only(links[0]) * 8 / 1e9,
    ]
    assert set(of_quick["hardware.cpu"]) == {"AMD EPYC"}
    assert set(of_quick["hardware.cores"]) == {2}
    assert only(each["cluster.step_seconds"] for each in settings) == 1
    assert gpus["workload.name"] == "resnet50"
    assert all(runs[study][LINK].isna().any() for study in OTHERS[1:])
    assert settings[0][LINK] is None  # links of `schemes` cost nothing
    for study in OTHERS:
        assert set(runs[study]["kind"]) == {"virtual"}
        assert set(runs[study]["data"]) == {"fashion_mnist"}
        assert about(study)["target"] == {"metric": "top1", "below_baseline": 0.02}
        assert about(study)["settings"]["training.schedule"] == "cosine"  # ends at zero


def test_the_network_that_was_run_for_its_speed_only():
    """Over half a pass of the images or less."""
    runs = table("own_pace")
    large = runs[(runs["model"] == "resnet18") & (runs["status"] == "finished")]
    assert 0.1 < large["samples"].max() / runs["distinct_samples"].max() <= 0.5


def test_the_seeds_and_the_search_of_the_map():
    assert about("when_asynchronous")["tuned_at"] == {"cluster.slow_workers": 0, LINK: None}
    runs = table("when_asynchronous")
    cells = ["scheme", "workers", "cluster.slow_workers", LINK]
    sizes = runs[runs["workers"] > 1].groupby(cells, dropna=False).size()
    assert stated("when_asynchronous", "searched with") == [only(sizes)]


def test_schemes_to_use_by_other_targets():
    less, more, loose, others, of, size, few, same = stated("Would another target")
    tables = read_tables(REPORTS / "when_asynchronous")
    asked = uses(tables, 2.0)
    assert uses(tables, less) == uses(tables, more) == asked
    found = uses(tables, loose)
    changed = {place: use for place, use in found.items() if use != asked[place]}
    assert {place[0] for place in changed} == {size, 64}
    of_16 = [use for place, use in changed.items() if place[0] == size]
    assert (len(of_16), set(of_16)) == (others, {"gossip", "local SGD"})
    assert len([place for place in found if place[0] == size]) == of
    assert [use for place, use in found.items() if place[0] == few] == ["gossip"] * int(same)


def uses(tables, points):
    """What to use in each situation, if the target is so many points below one worker."""
    target = {"metric": "top1", "below_baseline": points / 100}
    found = decision(replace(tables, about=tables.about | {"target": target}))
    cells = groups(found, ["workers", "cluster.slow_workers", LINK])
    return {
        tuple(str(each) if each != each else each for each in place.values()): choice(rows).use
        for place, rows in cells
        if place["workers"] > 1
    }


def test_the_luck_of_the_searches():
    rows = table("schemes", "tables/decision.csv")
    assert stated("Sixteen trials") == [pytest.approx(100 * rows["tuning_sd"].max(), abs=0.05)]
    widths = rows["top1_difference_high"] - rows["top1_difference_low"]
    assert 1.2 < 100 * widths.median() / 2 < 2.2  # of two points either side
