"""`paceline plan` on a tiny problem: what it measures, chooses and refuses."""

import math
import re

import pytest
import torch

from paceline import cli
from paceline.cluster.launcher import call_in_processes
from paceline.errors import SettingError
from paceline.prediction import race
from paceline.prediction.blocks import PLAIN
from paceline.prediction.measure_blocks import measure_blocks
from paceline.prediction.plan import best, bytes_of, check
from paceline.prediction.race import choice_of, feasible_plans
from paceline.record.point import Point
from paceline.study.compose import composed
from tests.prediction.counted_bytes import PROCESSORS, of_plans, on, plan_peak
from tests.prediction.test_whole_steps import planned
from tests.tiny import CONF, point_of, tiny_point

ROOT = CONF.parent
SMALL = ("data=synthetic", "data.image_shape=[1,16,16]", "cluster.accelerator=cpu")
SETTINGS = (*SMALL, "batch_size=32")


@pytest.fixture(scope="module")
def point():
    return Point.of(composed(SETTINGS, ROOT))


@pytest.fixture(scope="module")
def measured(point):
    return measure_blocks(point, 1)


def test_every_block_has_every_alternative_that_torch_can_do(measured):
    names = [block.name for block in measured.programme.blocks]
    assert names == [f"network.layers.{n}" for n in (0, 3, 7, 11)]
    assert [len(block.options) for block in measured.programme.blocks] == [8, 8, 8, 4]
    assert {name for name, _, _ in measured.left_out} == {"network.layers.11"}
    assert all("channels_last" in each for _, each, _ in measured.left_out)  # logits have no layout


def test_recomputed_blocks_keep_their_output_and_the_state_of_random_numbers(measured):
    images, random = 32 * 4, torch.get_rng_state().nbytes
    for block, size in zip(measured.programme.blocks[:2], [16 * 8 * 8, 16 * 4 * 4], strict=True):
        kept = {str(option.alternative): option.kept for option in block.options}
        assert kept["recompute"] == images * size + random
        assert kept["recompute"] < min(kept["bf16"], kept["plain"])


@pytest.fixture(scope="module", params=PROCESSORS)
def said_and_counted(request):
    return on(request.param, of_plans, SETTINGS, 40)


def test_plans_need_what_the_allocator_counts(said_and_counted):
    """That holds for the plain one and for the smallest one."""
    for said, counted in said_and_counted[:2]:
        assert said == pytest.approx(counted, rel=0.1)


def test_no_plan_needs_more_than_it_says(said_and_counted):
    """What is in another layout counts as if both copies were there until backward."""
    for said, counted in said_and_counted[2:]:
        assert counted <= said <= 1.35 * counted


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("model", ["small_cnn", "small_nin", "resnet18"])
def test_plans_need_what_a_gpu_counts(model):
    """Each in a process of its own, so that no other's workspace is counted."""
    chosen = [f"model={model}", "data=synthetic", "data.image_shape=[3,32,32]", "batch_size=32"]
    point = Point.of(composed([*chosen, "cluster.accelerator=gpu"], ROOT))
    programme = call_in_processes(measure_blocks, point, 1)[0].programme
    plain = programme.plan([block.option(PLAIN) for block in programme.blocks])
    (counted,) = call_in_processes(plan_peak, point, choice_of(programme, plain))
    assert plain.fullest.bytes == pytest.approx(counted, rel=0.1)
    smallest = programme.smallest()
    (counted,) = call_in_processes(plan_peak, point, choice_of(programme, smallest))
    assert 0.97 * counted <= smallest.fullest.bytes <= 1.35 * counted


def test_plans_to_measure_are_within_memory_and_include_uniform_ones(measured):
    programme = measured.programme
    least, most = programme.smallest().fullest.bytes, measured.memory.peak * 2
    everything = [str(plan) for plan in feasible_plans(programme, most)]
    assert "plain, plain, plain, plain" in everything
    assert "recompute, recompute, recompute, recompute" in everything
    within = feasible_plans(programme, least)
    assert within
    assert all(plan.fullest.bytes <= least for plan in within)
    assert [plan.seconds for plan in within] == sorted(plan.seconds for plan in within)


@pytest.mark.slow
def test_the_command_plans(capsys, monkeypatch):
    raced = []

    def noted(*given, compare=race.compare):
        raced.extend(compare(*given))
        return raced

    monkeypatch.setattr(race, "compare", noted)
    asked = ("batch_size=8,16", "--rounds", "1", "--seconds", "0", "--memory", "600kB")
    code, out, _ = command(capsys, monkeypatch, *asked)
    assert code == 0
    assert all(re.search(rf"^ *{size} ", out, re.MULTILINE) for size in (8, 16))
    chosen, of_size = raced[0], raced[0].planned
    assert chosen.plan.fullest.bytes <= 600e3
    rounds = [len(each.seconds) for each in raced]  # of as many as are near the fastest
    phases = max(1, math.ceil(math.log2(len(raced))))  # halved until two are left
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[:2] == [phases] * len(rounds[:2])
    assert of_size.plan.seconds >= of_size.unbounded.seconds
    assert re.search(rf"^ *choice +{of_size.batch_size} ", out, re.MULTILINE)


def test_too_little_memory_is_named_with_the_least_needed(capsys, monkeypatch):
    code, _, errors = command(
        *(capsys, monkeypatch, "batch_size=8", "--rounds", "1", "--memory", "100kB")
    )
    assert code == 2
    (line,) = errors.splitlines()
    assert line.startswith("paceline: memory: 0.10 MB are too little; the least needed is 0.")


def command(capsys, monkeypatch, *arguments):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("sys.argv", ["paceline", "plan", *SMALL, *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    captured = capsys.readouterr()
    return left.value.code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (["workers=1,2"], "workers"),
        (["--rounds", "0"], "rounds"),
        (["--seconds", "-1"], "seconds"),
        (["--memory", "much"], "memory"),
        (["--memory", "0MB"], "memory"),
        (["model.shards=2"], "model.shards"),
        (["training.precision=64-true"], "training.precision"),
    ],
)
def test_what_cannot_be_planned_is_named(capsys, monkeypatch, arguments, setting):
    code, _, errors = command(capsys, monkeypatch, *arguments)
    assert (code, len(errors.splitlines())) == (2, 1)
    assert errors.startswith(f"paceline: {setting}: ")


def test_data_of_anybody_declare_no_shape_to_plan_for():
    own = {"_target_": "tests.run.own.OwnData", "folder": None}
    point = tiny_point("sync_allreduce", 1, 8, data=own, training__precision="32-true")
    with pytest.raises(SettingError, match=r"^data.image_shape: .* declares none"):
        check(point_of(point))


def test_modelled_clusters_have_no_blocks_to_measure():
    with pytest.raises(SettingError, match=r"^cluster: blocks are measured"):
        check(Point.of(composed(["cluster=virtual"], ROOT)))


def test_sizes_of_memory():
    assert bytes_of("1.5GB", "cpu") == 1.5e9
    assert bytes_of("40 MB", "cpu") == 40e6
    assert bytes_of("7", "cpu") == 7
    assert bytes_of(None, "cpu") > 1e6


def test_the_best_batch_size_has_the_most_images_per_second():
    assert best([planned(64, plain=0.02), planned(16, plain=0.01)]).batch_size == 64
    assert best([planned(64, bf16=0.02), planned(16, plain=0.01)]).batch_size == 16
