import numpy as np
import pytest

from paceline.analysis.comparison import equal_accuracy, top1_difference, variance_of_draw
from paceline.analysis.decision import decision
from paceline.analysis.tables import read_tables
from paceline.record.rows import bits_of, text_of
from tests.made_reports import make_run, write_points, write_reports

SCHEMES = ("sync_allreduce", "gossip")


def tables_of(folder, right):
    """Tables of two seeds of each scheme; `right` [scheme, seed, image] are what they got right."""
    runs = [
        make_run(name, 2, seed=seed, test_top1=float(right[place][seed].mean()))
        for place, name in enumerate(SCHEMES)
        for seed in range(2)
    ]
    write_reports(folder, runs)
    rows = [
        {"key": run["key"], "images": own.size, "right": text_of(np.packbits(own).tobytes())}
        for run, own in zip(runs, np.concatenate(right), strict=True)
    ]
    write_points(folder, {"test": rows})
    return read_tables(folder)


def of(tables, scheme):
    return tables.runs[tables.runs["scheme"] == scheme]


def drawn(rng, images):
    """Images of three kinds: both right; the reference alone; gossip in one seed of two alone."""
    kinds = rng.choice(3, size=images, p=[0.8, 0.15, 0.05])
    both, first, half = (kinds == kind for kind in range(3))
    return np.array([[both | first, both | first], [both | half, both]])


def test_it_is_what_other_images_would_change(tmp_path):
    """As of two thousand draws of images of known kinds."""
    rng = np.random.default_rng(0)
    found = [drawn(rng, 400) for _ in range(2000)]
    differences = [right[1].mean() - right[0].mean() for right in found]
    tables = tables_of(tmp_path, drawn(rng, 40_000))
    variance = variance_of_draw(tables, of(tables, "gossip"), of(tables, "sync_allreduce")) * 100
    assert np.var(differences) == pytest.approx(variance, rel=0.1)  # 3 standard errors


def test_what_both_get_right_or_wrong_adds_nothing(tmp_path):
    same = np.random.default_rng(1).random(100) < 0.8
    tables = tables_of(tmp_path, np.array([[same, same], [same, same]]))
    assert variance_of_draw(tables, *(of(tables, name) for name in SCHEMES)) == 0


def test_it_widens_the_interval_of_a_difference(tmp_path):
    tables = tables_of(tmp_path / "known", drawn(np.random.default_rng(2), 400))
    known = decision(tables).set_index("scheme").loc["gossip"]
    write_points(tmp_path / "known", {"test": []})
    unknown = decision(read_tables(tmp_path / "known")).set_index("scheme").loc["gossip"]
    assert unknown["top1_difference_mean"] == pytest.approx(known["top1_difference_mean"])
    assert known["top1_difference_low"] < unknown["top1_difference_low"]
    assert known["top1_difference_high"] > unknown["top1_difference_high"]


@pytest.mark.parametrize("count", [1, 8, 9, 10_000])
def test_bits_survive_as_text(count):
    bits = np.random.default_rng(count).random(count) < 0.9
    assert np.array_equal(bits_of(text_of(np.packbits(bits).tobytes()), count), bits)


def test_an_accuracy_is_not_called_different_by_the_seeds_alone(tmp_path):
    """Two seeds that agree: both miss 12 of 1,000 images, which other images would change."""
    one, less = np.ones((2, 1000), bool), np.ones((2, 1000), bool)
    less[:, :12] = False
    tables = tables_of(tmp_path / "made", np.array([one, less]))
    sides = of(tables, "gossip"), of(tables, "sync_allreduce")
    found = top1_difference(tables, *sides)
    assert found.mean == pytest.approx(-0.012)
    assert found.low < -0.012 < found.high
    assert equal_accuracy(tables, *sides) == "not shown"
