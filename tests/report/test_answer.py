import pytest

from paceline.report.answer import answer
from tests.made_reports import fail, made_two_schemes, make_run


def test_what_the_numbers_tell_apart(findings):
    first, against, *scaled = answer(findings(made_two_schemes()))
    assert first == (
        "Highest mean images/s at 2 workers (measured, n = 3): "
        "async_parameter_server in 1 of 1 setting."
    )
    assert "async_parameter_server, 2 workers: 1.20 times the images/s of sync_all" in against
    assert "): faster. Its test top-1 differs by -10.00 points (measured, n = 3" in against
    assert against.endswith("less accurate.")
    assert len(scaled) == 2
    assert all("measured, n = 3, 95 % interval" in text for text in scaled)
    assert all(": more workers are faster. Test top-1 (measured): " in text for text in scaled)
    one = "80.1 % (79.9 to 80.3), n = 3"
    assert scaled[1].endswith(f"{one} with one worker; {one} with these.")


def test_what_they_do_not(findings):
    _, against, *scaled = answer(findings(made_two_schemes(spread=-700, accuracy=0.9)))
    assert against.count("3 seeds cannot tell them apart") == 2
    assert all("no gain can be told from noise." in text for text in scaled)


def test_a_paired_difference_is_not_enough_where_own_intervals_overlap(findings):
    """Each seed 20 % faster, but the seeds lie far apart."""
    runs = made_two_schemes(spread=0)
    for run in runs:
        run["images_per_second"] *= 1 + run["seed"]
    assert "3 seeds cannot tell them apart" in answer(findings(runs))[1]


def test_one_seed_tells_nothing(findings):
    _, against, *scaled = answer(findings(made_two_schemes(seeds=(0,))))
    assert "n = 1, no interval" in against
    assert "one seed in common cannot tell them apart" in against
    assert all("one seed cannot tell this from chance" in text for text in scaled)


def test_where_every_seed_diverged(findings):
    """At 4 workers one of two has finished."""
    points = [(8, 0), (8, 1), (16, 0), (16, 1), (4, 0)]
    lost = [make_run(workers=w, seed=s, kind="virtual", key=f"{w}-{s}") for w, s in points]
    runs = [make_run(workers=4, seed=1, kind="virtual", key="4-1")]
    runs += [fail(run, "diverged", "NaN") for run in lost]
    assert answer(findings(runs))[0] == (
        "sync_allreduce: every seed diverged at 8 and 16 workers (virtual, n = 2)."
    )


@pytest.mark.parametrize("scheme", ["sync", "async"])
def test_one_scheme_is_compared_with_none(findings, scheme):
    texts = answer(findings(made_two_schemes(schemes=(scheme,))))
    assert len(texts) == 2
    assert texts[1].startswith("Nothing can be said between schemes")


def test_without_one_worker_there_is_no_speedup(findings):
    runs = [run for run in made_two_schemes() if run["workers"] == 2]
    assert "What more workers bring cannot be said" in answer(findings(runs))[-1]
