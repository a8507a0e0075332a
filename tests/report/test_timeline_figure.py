import itertools

from paceline.report.timeline_figure import chosen, timeline
from tests.made_reports import make_run

SCHEMES = ("sync_allreduce", "async_parameter_server")


def virtual(scheme, workers, seed, **changes):
    key = f"{scheme[:5]}{workers}-{seed}{''.join(map(str, changes.values()))}"
    return make_run(scheme, workers, 32, seed, kind="virtual", key=key, **changes)


def test_the_first_seed_with_the_most_workers_that_has_a_timeline(findings):
    points = itertools.product(SCHEMES, (1, 16, 32), (1, 0))
    runs = chosen(findings([virtual(*point) for point in points]))
    assert list(runs["key"]) == ["sync_16-0", "async16-0"]


def test_few_panels_and_every_scheme_among_them(findings):
    rates = {"training.rate": ("a", "b", "c")}
    points = itertools.product(SCHEMES, rates["training.rate"])
    runs = [virtual(scheme, 2, 0, **{"training.rate": rate}) for scheme, rate in points]
    found = chosen(findings(runs, axes=["scheme", "training.rate", "seed"]))
    assert list(found["key"]) == ["sync_2-0a", "sync_2-0b", "async2-0a", "async2-0b"]


def test_a_row_per_worker_and_a_title_that_says_the_kind(findings):
    figure = timeline(findings([virtual("sync_allreduce", 4, 0)]))
    (axis,) = figure.axes
    assert axis.get_title() == "sync_allreduce, 4 workers (virtual)"
    assert axis.get_ylim() == (3.5, -0.5)
    assert [patch.get_label() for patch in axis.patches] == ["wait", "compute", "exchange"]
    (compute,) = (patch for patch in axis.patches if patch.get_label() == "compute")
    first = compute.get_path().vertices[:4]
    assert first.tolist() == [[0, -0.4], [0.8, -0.4], [0.8, 0.4], [0, 0.4]]


def test_no_figure_without_rows(reports):
    assert "figure-timeline" not in reports([make_run(workers=2)])


def test_the_caption_says_what_it_shows(reports):
    page = reports([make_run(seed=0), virtual("sync_allreduce", 2, 0)])
    caption = page[page.index('id="figure-timeline"') :]
    caption = caption[caption.index("<figcaption>") : caption.index("</figcaption>")]
    assert caption.endswith("Numbers: virtual.")
