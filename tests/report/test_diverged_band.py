import pandas as pd
from matplotlib.figure import Figure

from paceline.report.diverged_band import diverged_band
from tests.made_reports import fail, make_run

SCHEMES = ["sync_allreduce", "async_parameter_server"]


def drawn(*rows):
    columns = ["scheme", "kind", "workers", "n", "n_diverged"]
    axis = Figure().subplots()
    axis.set_ylim(0.8, 0.9)
    diverged_band(axis, pd.DataFrame(rows, columns=columns), SCHEMES)
    return axis


def test_counts_stand_below_the_lines():
    one = (SCHEMES[0], "virtual", 16, 3, 1), (SCHEMES[0], "virtual", 64, 3, 3)
    axis = drawn(*one, (SCHEMES[1], "virtual", 64, 3, 2), (SCHEMES[1], "virtual", 1, 3, 0))
    assert [text.get_text() for text in axis.texts] == ["1/3", "3/3", "2/3"]
    assert [text.xy[0] for text in axis.texts] == [16, 64, 64]
    assert all(axis.get_ylim()[0] < text.xy[1] < 0.8 for text in axis.texts)
    assert axis.texts[2].xy[1] < axis.texts[1].xy[1]
    assert axis.get_yticklabels()[-1].get_text() == "diverged"


def test_nothing_is_drawn_where_nothing_diverged():
    axis = drawn((SCHEMES[0], "virtual", 16, 3, 0))
    assert len(axis.texts) == 0
    assert axis.get_ylim() == (0.8, 0.9)


def test_a_page_where_all_seeds_of_a_point_diverged(reports):
    runs = [make_run(seed=s) for s in (0, 1)]
    runs += [fail(make_run(workers=2, seed=s), "diverged", "NaN") for s in (0, 1)]
    assert "Hollow markers below the lines" in reports(runs)


def test_a_page_where_none_did(reports):
    assert "Hollow markers" not in reports([make_run(seed=s) for s in (0, 1)])
