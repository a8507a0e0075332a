"""What README.md says of studies besides its generated table: tables and pages say the same."""

import re
from dataclasses import replace

import pandas as pd
import pytest
import yaml

from paceline.analysis.configuration import groups
from paceline.analysis.decision import decision
from paceline.analysis.tables import read_tables
from paceline.report.choice import choice
from tests.made_reports import view
from tests.tiny import CONF

ROOT = CONF.parent
TEXT = " ".join((ROOT / "README.md").read_text().split())
OTHERS = ("schemes", "accuracy_vs_workers", "when_asynchronous")
TARGET = {"metric": "top1", "below_baseline": 0.02}
OF_A_SECOND = ("schemes", "when_asynchronous")  # a step


def said(pattern):
    """Return the groups of the only place of README.md that has this pattern."""
    (found,) = re.findall(pattern, TEXT)
    return found


def number(text):
    return float(text.replace(",", ""))


def declared(study):
    return yaml.safe_load((ROOT / f"experiments/{study}.yaml").read_text())


def table(study, name):
    return pd.read_csv(ROOT / "reports" / study / name)


def page(study):
    return (ROOT / "reports" / study / "README.md").read_text()


def test_networks_machine_and_budget():
    of_quick = number(said(r"on two cores \(AMD EPYC, no GPU\) with a CNN of ([\d,]+)"))
    runs = table("example", "runs.csv")
    assert set(runs["num_parameters"]) == {of_quick}
    assert set(runs["hardware.cpu"]) == {"AMD EPYC"}
    assert set(runs["hardware.cores"]) == {2}
    epochs, rest = said(
        r"virtual clock, (\d+) epochs of Fashion-MNIST over all workers, a CNN of ([\d,]+)"
    )
    for study in OTHERS:
        runs = table(study, "runs.csv")
        assert set(runs["num_parameters"].dropna()) == {number(rest)}
        assert set(runs["kind"]) == {"virtual"}
        assert set(runs["data"]) == {"fashion_mnist"}
        assert declared(study)["training"]["epochs"] == int(epochs)
        assert declared(study)["target"] == TARGET


@pytest.mark.parametrize("study", OTHERS)
def test_searches(study):
    trials = int(said(r"they take the best of (\d+) trials of rate and momentum, or more"))
    tuning = table(study, "tuning.csv")
    axes = [name for name in ("scheme", "workers", "scheme.backup_workers") if name in tuning]
    assert tuning.groupby(axes, dropna=False).size().min() == trials
    assert declared(study)["training"]["schedule"] == "cosine"  # ends at zero


@pytest.mark.parametrize("study", OF_A_SECOND)
def test_the_time_of_a_step(study):
    cluster = declared(study)["cluster"]
    assert said(r"a step takes a second, more or less by a (\w+)") == "third"
    assert (cluster.get("step_seconds", 1), cluster["step_jitter"]) == (1, 0.3)
    assert said(r"a slow worker takes (\w+) times as long") == "four"
    assert cluster["slow_factor"] == 4


def test_the_time_of_a_real_network():
    gpus, gigabits = map(int, said(r"that of ResNet-50 on instances of (\d+) K80 with (\d+) Gb/s"))
    config = declared("accuracy_vs_workers")
    used = {name: value for each in config["defaults"] for name, value in each.items()}
    assert (used["override /cluster"], used["override /workload"]) == ("ec2_p2", "resnet50")
    profile = yaml.safe_load((CONF / "cluster/ec2_p2.yaml").read_text())
    assert profile["workers_per_node"] == gpus
    links = {grid["cluster.link.bandwidth"] for grid in config["grids"]}
    assert links == {"null", 1e9 * gigabits / 8}


def test_the_links_of_the_map():
    megabytes, *seconds = said(
        r"gradients of (\d+) MB take 0, ([\d.]+), (\d+) or (\d+) seconds over"
    )
    config = declared("when_asynchronous")
    num_bytes = config["workload"]["num_bytes"]
    assert num_bytes == 1e6 * int(megabytes)
    links = {*config["grids"][1]["cluster.link.bandwidth"].split(",")}
    taken = sorted(num_bytes / int(link) for link in links - {"null"})
    assert taken == pytest.approx([float(each) for each in seconds], rel=1e-6)
    assert "null" in links
    assert "links cost nothing" in page("schemes")


def test_clocks_and_predictions():
    tens = said(r"agree within 10 % in (\d+ of \d+) configurations: \[reports/twin\]")
    assert f"paced: images/s agree within 10 % in {tens} configurations" in page("twin")
    exchange, of, near = said(
        r"within 20 % of those of paced processes in (\d+) of (\d+) configurations, and images/s "
        r"within 10 % in (\d+)"
    )
    validation = "Validation: All settings: predicted images/s are within 10 % of those paced in "
    assert f"{validation}{near} of {of} configurations" in page("exchange")
    validation = "Validation: Predicted seconds of exchange are within 20 % in "
    assert f"{validation}{exchange} of {of} configurations" in page("exchange")
    right, of = map(
        int, said(r"within 15 % of the measured ones in (\d+) of the (\d+) configurations")
    )
    lines = [
        each for each in page("own_pace").splitlines() if re.match(r"Validation: \d+ images", each)
    ]
    pairs = [re.findall(r"measured in (\d+) of (\d+)", line)[0] for line in lines]
    assert tuple(sum(int(pair[i]) for pair in pairs) for i in (0, 1)) == (right, of)


def test_by_data_or_by_model():
    megabits, auto, data, alone, seeds = said(
        r"links of (\d+) Mbit/s two processes train a small AlexNet at ([\d,]+) images/s by the "
        r"division `auto`, at ([\d,]+) by data, and one alone trains it at ([\d,]+) "
        r"\(\*\*paced\*\*, (\d+) seeds\)"
    )
    rows = view(read_tables(ROOT / "reports/five_ways"), "summary")
    rows = rows[(rows["kind"] == "paced") & (rows["model"] == "small_alexnet")]
    rows = rows[rows["cluster.link.bandwidth"] == int(megabits) * 1e6 / 8]
    rows = rows[rows["model.split"] == "auto"]
    (one,) = rows.loc[rows["workers"] * rows["model.shards"] == 1, "images_per_second_mean"]
    assert round(one) == number(alone)
    rows = rows[rows["workers"] * rows["model.shards"] == 2]
    rates = {row["workers"]: row for _, row in rows.iterrows()}
    assert round(rates[1]["images_per_second_mean"]) == number(auto)
    assert round(rates[2]["images_per_second_mean"]) == number(data)
    assert {int(row["n"]) for row in rates.values()} == {int(seeds)}


def test_the_network_that_was_run_for_its_speed_alone():
    assert (
        "ResNet-18 was run for its images/s alone, over half a pass of the images or less" in TEXT
    )
    runs = table("own_pace", "runs.csv")
    large = runs[(runs["model"] == "resnet18") & (runs["status"] == "finished")]
    assert 0.1 < large["samples"].max() / runs["distinct_samples"].max() <= 0.5


def test_the_seeds_and_the_search_of_the_map():
    assert "searched with even workers and free links" in TEXT
    seeds = int(said(r"are used with the others, too; (\d) seeds a cell"))
    at = declared("when_asynchronous")["tuning"]["at"]
    assert at == {"cluster.slow_workers": 0, "cluster.link.bandwidth": None}
    runs = table("when_asynchronous", "runs.csv")
    several = runs[runs["workers"] > 1]
    cells = ["scheme", "workers", "cluster.slow_workers", "cluster.link.bandwidth"]
    assert set(several.groupby(cells, dropna=False).size()) == {seeds}


def test_schemes_to_use_by_other_targets():
    less, more, loose, others, of, same = map(
        float,
        said(
            r"are the same at ([\d.]+) and ([\d.]+) points below one worker. At (\d) points "
            r"gossip or local SGD takes (\d) of the (\d) situations of 16 workers; with 4 workers "
            r"gossip keeps all (\d)"
        ),
    )
    tables = read_tables(ROOT / "reports/when_asynchronous")
    asked = uses(tables, 100 * TARGET["below_baseline"])
    assert uses(tables, less) == uses(tables, more) == asked
    found = uses(tables, loose)
    changed = {place: use for place, use in found.items() if use != asked[place]}
    assert {place[0] for place in changed} == {16, 64}
    of_16 = [use for place, use in changed.items() if place[0] == 16]
    assert (len(of_16), set(of_16)) == (others, {"gossip", "local SGD"})
    assert len([place for place in found if place[0] == 16]) == of
    assert [use for place, use in found.items() if place[0] == 4] == ["gossip"] * int(same)


def uses(tables, points):
    """What to use in each situation, if the target is so many points below one worker."""
    target = {"metric": "top1", "below_baseline": points / 100}
    table = decision(replace(tables, about=tables.about | {"target": target}))
    cells = groups(table, ["workers", "cluster.slow_workers", "cluster.link.bandwidth"])
    return {
        tuple(str(each) if each != each else each for each in place.values()): choice(rows).use
        for place, rows in cells
        if place["workers"] > 1
    }


def test_the_luck_of_the_searches():
    points = float(said(r"a difference of accuracies in `schemes` by up to ([\d.]+) points"))
    decision = table("schemes", "tables/decision.csv")
    assert round(100 * decision["tuning_sd"].max(), 1) == points
    widths = decision["top1_difference_high"] - decision["top1_difference_low"]
    assert 1.2 < 100 * widths.median() / 2 < 2.2  # of two points either side
