from paceline.report.cautions import cautions
from tests.made_reports import fail, made_runs, make_run


def seeds(**changes):
    return [make_run(seed=seed, **changes) for seed in (0, 1)]


def test_nothing_to_say(findings):
    assert cautions(findings(seeds())) == []


def test_points_that_ended_badly_are_named_with_their_reasons(findings):
    diverged, failed = cautions(findings(made_runs()))
    assert "1 point diverged (workers 2, batch_size 128, seed 2)" in diverged
    assert diverged.endswith("left out of every mean: accuracy at chance: top-1 is 0.100")
    assert "1 point failed (workers 2, batch_size 32, seed 2)" in failed
    assert failed.endswith("worker 1 ended with exit code 1")


def test_fewer_cores_than_workers_and_servers(findings):
    runs = [make_run("async_parameter_server", 2, 32, s, **{"hardware.cores": 2}) for s in (0, 1)]
    (text,) = cautions(findings(runs))
    assert text.startswith("2 of 2 points had more processes")
    assert "3 on 2" in text


def test_points_at_the_same_time_share_cores(findings):
    (text,) = cautions(findings(seeds(workers=2, jobs=4)))
    assert "8 on 4" in text


def test_points_that_ran_under_unlike_conditions(findings):
    runs = [make_run(seed=0, accelerator="cpu"), make_run(seed=1, accelerator="cuda")]
    (text,) = cautions(findings(runs))
    assert text.endswith("accelerator cpu, cuda.")


def test_a_virtual_run_has_one_process(findings):
    assert cautions(findings(seeds(workers=2, jobs=4, kind="virtual"))) == []


def test_what_is_missing_left_out_or_of_other_code(findings):
    about = {"num_points": 5, "missing": ["abc"], "other_records": ["d", "e"], "stale_code": 1}
    assert cautions(findings(seeds(), **about)) == [
        "No record yet of 1 of 5 points: abc.",
        "Left out, of earlier settings in the same folder: 2 records, d, e.",
        "Made by other code than the latest: 1 record.",
    ]


def test_a_run_that_is_not_what_its_scheme_says(findings):
    runs = seeds(workers=2, certificate="not synchronous: workers ended with other weights")
    (text,) = cautions(findings(runs))
    assert text == (
        "Of sync_allreduce with 2 workers, 2 points: not synchronous: workers ended with other "
        "weights."
    )


def test_one_seed_is_said(findings):
    (text,) = cautions(findings([make_run()]))
    assert text.startswith("1 of 1 configurations have one finished seed alone")


def test_a_failed_point_alone(findings):
    (text,) = cautions(findings([fail(make_run())]))
    assert "1 point failed (workers 1, seed 0)" in text
