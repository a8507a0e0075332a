from paceline.report.caution_sentences import cautions
from tests.made_reports import fail, made_runs, make_run


def seeds(**changes):
    return [make_run(seed=seed, **changes) for seed in (0, 1)]


def test_nothing_to_say(findings):
    assert cautions(findings(seeds())) == []


def test_points_that_ended_badly_are_named_with_their_reasons(findings):
    diverged, failed = cautions(findings(made_runs()))
    assert "1 measured point diverged (workers 2, batch_size 128, seed 2)" in diverged
    assert diverged.endswith("left out of every mean: accuracy at chance: top-1 is 0.100")
    assert "1 measured point failed (workers 2, batch_size 32, seed 2)" in failed
    assert failed.endswith("worker 1 ended with exit code 1")


def test_fewer_cores_than_workers_and_servers(findings):
    runs = [make_run("async_parameter_server", 2, 32, s, **{"hardware.cores": 2}) for s in (0, 1)]
    (text,) = cautions(findings(runs))
    assert text.startswith("2 of 2 measured points had more processes")
    assert "3 on 2" in text


def test_rates_that_were_searched_elsewhere(findings):
    """Of two networks one is that of the search, and a rate by rule has no search."""
    name = "cluster.link.bandwidth"
    axes = ["scheme", "workers", "seed", "training.rate", name]
    runs = [
        make_run(seed=seed, key=f"{seed}{rate}{bandwidth}")
        | {name: bandwidth, "training.rate": rate}
        for seed in (0, 1)
        for rate, bandwidth in (("tuned", None), ("tuned", 125e6), ("by_rule", 125e6))
    ]
    at = {name: None, "cluster.slow_workers": 0}  # of which the second is no axis
    said = cautions(findings(runs, axes=axes, tuned_at=at))
    assert [text for text in said if "searched" in text] == [
        "2 of 4 tuned points ran elsewhere than with links without a limit, where their rates were "
        "searched: schemes whose updates depend on times may have better ones."
    ]
    del at[name]
    assert not [t for t in cautions(findings(runs, axes=axes, tuned_at=at)) if "searched" in t]


def test_points_at_the_same_time_share_cores(findings):
    (text,) = cautions(findings(seeds(workers=2, jobs=4)))
    assert "8 on 4" in text


def test_points_that_ran_under_unlike_conditions(findings):
    runs = [make_run(seed=0, accelerator="cpu"), make_run(seed=1, accelerator="cuda")]
    (text,) = cautions(findings(runs))
    assert text.startswith("Measured points")
    assert text.endswith("accelerator cpu, cuda.")


def test_conditions_differ_within_a_kind_only(findings):
    runs = [make_run(seed=s) for s in (0, 1)]
    runs += [make_run(workers=2, seed=s, kind="paced", jobs=2) for s in (0, 1)]
    assert cautions(findings(runs)) == []


def test_paced_workers_are_expected_to_share_cores(findings):
    (text,) = cautions(findings(seeds(workers=2, jobs=4, kind="paced")))
    assert text.startswith("2 of 2 paced points had more processes")
    assert text.endswith("than cores: 8 on 4. As expected of paced: they sleep most of the time.")


def test_steps_that_were_too_late_for_the_pace(findings):
    """20 steps each, of 2 workers."""
    late = [make_run(workers=2, seed=s, kind="paced", late_steps=n) for s, n in enumerate((0, 5))]
    (text,) = cautions(findings(late))
    assert text.startswith("1 of 2 paced points did not keep the pace")
    assert "in up to 25.0 % of the steps" in text


def test_links_that_cost_nothing(findings):
    virtual, free = seeds(kind="virtual"), {"cluster.link.bandwidth": None}
    assert "links cost nothing" in cautions(findings(virtual, settings=free))[1]
    assert len(cautions(findings(virtual, settings={"cluster.link.bandwidth": 1e9}))) == 1
    assert cautions(findings(seeds(kind="measured"), settings=free)) == []


def test_a_virtual_run_has_one_process_and_modelled_time(findings):
    assert cautions(findings(seeds(workers=2, jobs=4, kind="virtual"))) == [
        "2 of 2 points are virtual: time is modelled from the cluster profile, gradients are real."
    ]


def test_seeds_that_diverged_together_are_named_together(findings):
    reasons = ("NaN", "top-1 is 0.1", "top-1 is 0.2", "top-1 is 0.3")
    runs = [fail(make_run(seed=s), "diverged", text) for s, text in enumerate(reasons)]
    (text,) = cautions(findings(runs))
    assert text == (
        "Of sync_allreduce, 4 measured points diverged (workers 1, seeds 0, 1, 2, 3), left out of "
        "every mean: NaN; top-1 is 0.1; top-1 is 0.2; 1 more"
    )


def test_a_worker_that_was_lost_on_the_way(findings):
    _, other = runs = seeds(workers=2)
    other["reason"] = "worker 1 was lost after 3 steps: killed by SIGKILL"
    assert cautions(findings(runs)) == [
        "Of sync_allreduce with 2 workers, seed 1, counted in every mean all the same: "
        "worker 1 was lost after 3 steps: killed by SIGKILL."
    ]


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
    assert "1 measured point failed (workers 1, seed 0)" in text


def test_records_that_do_not_fit_are_named_with_their_reasons(findings):
    (text,) = cautions(findings(seeds(), unfit={"abc": "curve.csv: there is none"}))
    assert text.startswith("Not believed, and in no number: 1 record whose")
    assert text.endswith(": abc (curve.csv: there is none).")
