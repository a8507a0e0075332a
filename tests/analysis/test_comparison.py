import math

import pytest

from paceline.analysis.comparison import against_first
from tests.made_reports import concluded, make_run

OTHER = "async_parameter_server"


def test_schemes_are_compared_seed_by_seed(made):
    runs = [
        make_run(seed=0, images_per_second=100.0, top1=0.8),
        make_run(seed=1, images_per_second=200.0, top1=0.9),
        make_run(OTHER, seed=0, images_per_second=150.0, top1=0.75),
        make_run(OTHER, seed=1, images_per_second=260.0, top1=0.87),
    ]
    (row,) = concluded(made(runs), "reference").to_dict("records")
    assert (row["scheme"], row["reference"]) == (OTHER, "sync_allreduce")
    assert row["reference_speed_ratio_mean"] == pytest.approx(math.sqrt(1.5 * 1.3))
    assert row["reference_speed_ratio_high"] == pytest.approx(
        math.sqrt(1.5 * 1.3) * (1.5 / 1.3) ** (12.7062047 / 2)
    )
    assert row["reference_top1_difference_mean"] == pytest.approx(-0.04)
    assert row["reference_top1_difference_low"] == pytest.approx(-0.04 - 12.7062047 * 0.01)


def test_kinds_and_settings_are_not_compared_across(made):
    runs = [make_run(), make_run(OTHER, kind="virtual"), make_run(OTHER, batch_size=128)]
    assert list(concluded(made(runs), "reference")["reference_speed_ratio_n"]) == [0, 0]


def test_one_scheme_has_nothing_to_compare_with(made):
    assert concluded(made([make_run()]), "reference").empty


def test_settings_of_one_scheme_alone_keep_it_comparable(made):
    """Another scheme has no such setting, whether the scheme takes one or two values of it."""
    runs = [make_run(seed=seed) | {"scheme.servers": None} for seed in (0, 1)]
    runs += [make_run(OTHER, seed=s) | {"scheme.servers": n} for n in (1, 2) for s in (0, 1)]
    axes = ["scheme", "workers", "scheme.servers", "seed"]
    for number in (1, 2):
        rows = concluded(made(runs[: 2 + 2 * number], axes=axes), "reference")
        assert list(rows["reference_speed_ratio_n"]) == [2] * number


def test_a_reference_of_several_settings_is_compared_with_at_equal_ones(made):
    runs = [make_run(seed=s) | {"scheme.period": n} for n in (1, 2) for s in (0, 1)]
    runs += [make_run(OTHER, seed=s) | {"scheme.period": n} for n in (2, 4) for s in (0, 1)]
    axes = ["scheme", "workers", "scheme.period", "seed"]
    rows = concluded(made(runs, axes=axes), "reference")
    assert list(rows["reference_speed_ratio_n"]) == [2, 0]


def test_each_configuration_is_compared_with_the_first_of_its_seeds(made):
    sizes = {32: (0, 1), 64: (0, 1), 128: (2, 3), 256: (2, 3)}
    top1 = {32: 0.8, 64: 0.7, 128: 0.6, 256: 0.65}
    runs = [
        make_run(batch_size=size, seed=seed, test_top1=top1[size] + seed / 100)
        for size, seeds in sizes.items()
        for seed in seeds
    ]
    found = against_first(made(runs))
    assert list(found["first_mean"].round(9).fillna(0)) == [0, -0.1, 0, 0.05]
    assert list(found["first_n"]) == [0, 2, 0, 2]


def test_data_sets_are_not_compared_with_each_other(made):
    runs = [
        make_run(batch_size=size, seed=seed, test_top1=top1) | {"data": data}
        for data, size, top1 in (("a", 32, 0.9), ("b", 32, 0.5), ("b", 64, 0.6))
        for seed in (0, 1)
    ]
    assert list(against_first(made(runs))["first_mean"].round(9).fillna(0)) == [0, 0, 0.1]


@pytest.mark.parametrize(("last", "n"), [(0.85, 2), (0.7, 0)])
def test_times_to_a_target_of_the_study_are_compared_if_all_runs_reach_it(made, last, n):
    runs = [
        make_run(batch_size=size, seed=seed, top1=0.85, seconds=float(size))
        for size in (32, 64, 128)
        for seed in (0, 1)
    ]
    runs[-1]["top1"] = last
    found = against_first(made(runs, target={"metric": "top1", "value": 0.8}))
    assert list(found["first_mean"].round(9).fillna(0)) == [0, 2, 4 if n else 0]
    assert list(found["first_n"]) == [0, 2, n]
