from paceline.analysis.clocks import clock_agreement
from tests.made_reports import make_run

AXES = ["scheme", "workers", "cluster", "seed"]


def twins(workers, ratio=1.0, stale=(2.0, 2.0), points=(0.0, 0.0)):
    return [
        make_run(
            "async_parameter_server",
            workers,
            32,
            seed,
            kind=kind,
            cluster=kind,
            key=f"{kind}{workers}{seed}",
            images_per_second=1000.0 * (ratio if kind == "virtual" else 1),
            staleness_mean=stale[kind == "virtual"],
            test_top1=0.8 + (points[seed] if kind == "virtual" else 0),
        )
        for seed in (0, 1)
        for kind in ("paced", "virtual")
    ]


def verdicts(made, runs, what):
    table = clock_agreement(made(runs, axes=AXES))
    rows = table[table["what"] == what]
    return list(zip(rows["workers"], rows["measure"], rows["verdict"], strict=True))


def test_the_furthest_comes_first(made):
    runs = twins(2, 1.1) + twins(4, 0.5) + twins(8, 1.2)
    assert verdicts(made, runs, "images_per_second") == [
        (4, "ratio", "outside"),
        (8, "ratio", "outside"),
        (2, "ratio", "within"),
    ]


def test_little_staleness_is_judged_by_its_difference(made):
    """0.05 updates are as much as 10 %."""
    runs = twins(2, stale=(0.0, 0.05)) + twins(4, stale=(0.0, 0.06))
    assert verdicts(made, runs, "staleness_mean") == [
        (4, "difference", "outside"),
        (2, "difference", "within"),
    ]


def test_accuracy_is_judged_by_its_interval_at_the_most_workers(made):
    runs = twins(2, points=(-0.05, 0.05)) + twins(4, points=(-0.001, 0.001))
    assert verdicts(made, runs, "test_top1") == [(4, "difference", "within")]
    assert verdicts(made, runs[:4], "test_top1") == [(2, "difference", "outside")]
    assert verdicts(made, runs[:2], "test_top1") == [(2, "difference", "unknown")]
