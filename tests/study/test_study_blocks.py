"""A block holds each configuration once, in a random order, between two runs of its reference."""

import json

import pytest

from paceline.errors import SettingError
from paceline.record.archive import ARCHIVE, read_archive
from paceline.study.collect import collect
from paceline.study.study_point import in_blocks as blocks_of
from paceline.study.study_points import Study, study_points
from paceline.study.sweep import checked_study, sweep
from tests.made_records import make_record, rows_of

AXES = {"scheme": "sync_allreduce,async_parameter_server", "workers": "1,2", "seed": "0,1"}
REFERENCE = {"scheme": "sync_allreduce", "workers": 1}


def blocks(order=0):
    return {"blocks": {"order": order, "reference": REFERENCE}}


@pytest.fixture
def in_blocks(root, studied):
    """The study `made` in two blocks; its settings and axes may be others."""

    def write(settings=None, **axes):
        studied("made", settings or blocks(), **{**AXES, **axes})
        return root

    return write


def order(block):
    return [(point.axes["scheme"][:4], point.axes["workers"]) for point in block]


def test_each_block_has_all_configurations_of_one_seed_between_its_references(in_blocks):
    points = study_points("made", in_blocks())
    for seed, block in enumerate(blocks_of(points)):
        assert {point.config.seed for point in block} == {seed}
        assert {point.key for point in block[:-1]} == {
            p.key for p in points if p.axes["seed"] == seed
        }
        assert len(block) == 5
        assert order(block)[0] == order(block)[-1] == ("sync", 1)


def test_the_order_is_random_from_block_to_block_and_known_by_its_seed(in_blocks):
    root = in_blocks(seed="0,1,2,3")
    points = study_points("made", root)
    orders = [order(block) for block in blocks_of(points)]
    assert len({tuple(each) for each in orders}) > 1
    assert orders == [order(block) for block in blocks_of(points)]
    assert orders[:2] == [
        order(block) for block in blocks_of([p for p in points if p.config.seed < 2])
    ]
    other = study_points("made", in_blocks(blocks(order=1), seed="0,1,2,3"))
    assert orders != [order(block) for block in blocks_of(other)]


def test_a_repeat_differs_from_its_reference_by_its_setting_alone(in_blocks):
    root = in_blocks()
    for first, *_, last in blocks_of(study_points("made", root)):
        assert last.key != first.key
        assert last.folder == first.folder.with_name(last.key)
        assert last.overrides == (*first.overrides, "repeat=1")
        (composed,) = study_points("made", root, last.overrides)
        assert composed.key == last.key
        (again,) = study_points("made", root, [*first.overrides, "repeat=0"])
        assert again.key == first.key


def test_a_sweep_runs_block_after_block_and_goes_on_where_it_stopped(in_blocks):
    root = in_blocks({**blocks(), "measurement": {"mlflow": {"tracking_uri": None}}})
    planned = [point for block in blocks_of(study_points("made", root)) for point in block]
    first, second = [], []

    def run(points):
        for point in points:
            if len(first) == 7:
                raise KeyboardInterrupt
            first.append(point.key)
            make_record(point.folder, point.config)
        return [None for _ in points]

    def run_without_a_record(points):
        second.extend(point.key for point in points)
        return [None for _ in points]

    with pytest.raises(KeyboardInterrupt):
        sweep(checked_study("made", root), run)
    assert not sweep(checked_study("made", root), run_without_a_record)
    assert [*first, *second] == [point.key for point in planned]


def test_what_is_collected_has_repeats_in_runs_alone(in_blocks):
    root = in_blocks()
    for point in Study("made", root).with_repeats():
        make_record(point.folder, point.config)
    folder = collect(Study("made", root))
    rows = rows_of(folder / "runs.csv")
    assert [row["repeat"] for row in rows] == ["0"] * 8 + ["1"] * 2
    keys = read_archive(folder / ARCHIVE)["result.json"]
    assert set(keys) == {row["key"] for row in rows}
    state = json.loads((folder / "study.json").read_text())
    assert state["axes"] == ["scheme", "workers", "seed"]
    assert (state["num_points"], state["missing"], state["other_records"]) == (8, [], [])


def test_a_study_without_blocks_is_as_it_was(root):
    study = Study("made", root)
    assert study.blocks == []
    assert study.with_repeats() == study.points
    assert "repeat" not in study.points[0].axes


@pytest.mark.parametrize(
    ("asked", "setting", "says"),
    [
        ({"order": 0, "reference": {"workers": 1}}, "blocks.reference", "it fits 2 of"),
        ({"order": 0, "reference": {"workers": 9}}, "blocks.reference", "it fits 0 of"),
        ({"order": 0, "reference": {}}, "blocks.reference", "at least 1"),
        ({"order": -1, "reference": REFERENCE}, "blocks.order", "0"),
        ({"reference": REFERENCE}, "blocks.order", "a value is needed"),
        ({"order": 0, "reference": REFERENCE, "count": 5}, "blocks.count", "no such setting"),
        (5, "blocks", "{order, reference}"),
    ],
)
def test_bad_blocks_are_refused_by_name(in_blocks, asked, setting, says):
    points = study_points("made", in_blocks({"blocks": asked}))
    with pytest.raises(SettingError, match=says) as error:
        blocks_of(points)
    assert error.value.setting == setting


def test_blocks_need_the_same_configurations_for_each_seed(root, studied):
    grids = [{"workers": "1,2", "seed": "0,1"}, {"workers": "3", "seed": "0"}]
    studied("made", {**blocks(), "grids": grids}, scheme="sync_allreduce")
    with pytest.raises(SettingError, match="seed 1 has other configurations than seed 0"):
        blocks_of(study_points("made", root))


def test_points_of_a_block_run_one_at_a_time_and_those_of_the_virtual_clock_afterwards(
    root, studied
):
    real = {"cluster": "local", **AXES}
    grids = [
        {"cluster": "virtual", "scheme": "sync_allreduce", "workers": "1,4", "seed": "0"},
        real,
    ]
    studied("made", {**blocks(), "sweep": {"jobs": 3}, "grids": grids})
    study = checked_study("made", root)
    launched = []

    def launch(points):
        launched.append(
            [(point.config.names["cluster"], point.config.sweep.jobs) for point in points]
        )
        return [make_record(point.folder, point.config) for point in points]

    assert sweep(study, launch)
    assert launched == [[("local", 1)] * 5, [("local", 1)] * 5, [("virtual", 3)] * 2]
    rows = rows_of(collect(study) / "runs.csv")
    repeats = [(row["cluster"], row["repeat"]) for row in rows]
    assert sorted(repeats) == sorted(
        [("local", "0")] * 8 + [("local", "1")] * 2 + [("virtual", "")] * 2
    )


def test_a_repeat_is_a_whole_number(root):
    (point, *_) = study_points("made", root, ["repeat=-1"])
    with pytest.raises(SettingError) as error:
        _ = point.point
    assert error.value.setting == "repeat"
