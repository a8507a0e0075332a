"""Runs of planted schemes, with the time at which each run reaches the target."""

from tests.made_reports import make_run, write_points, write_reports

SEEDS = range(4)
TARGET = {"metric": "top1", "value": 0.8}
_TURNED = {"gossip": 0, "local_sgd": 1, "mixed": 2, "async_parameter_server": 3}
AXES = ["scheme", "workers", "batch_size", "seed"]


def arm(scheme, crossing, top1, workers=4, **changes):
    """Runs of 1,000 s with a point more or less by seed, and the time at which each crosses.

    Seeds do not explain all of either: their order differs between schemes.
    """
    return [
        make_run(
            scheme,
            workers,
            seed=seed,
            seconds=1000.0,
            top1=top1 + ((seed + _TURNED.get(scheme, 0)) % 4 - 1.5) / 1000,
            test_top1=top1 + ((seed + _TURNED.get(scheme, 0)) % 4 - 1.5) / 1000,
            images_per_second=100.0 * workers,
            crossing=None
            if crossing is None
            else crossing + 10 * ((seed + _TURNED.get(scheme, 3)) % 4),
        )
        | changes
        for seed in SEEDS
    ]


def two_arms(crossings, workers, **settings):
    """Runs of all-reduce and of gossip, which cross at these times, with settings besides."""
    ending = "".join(map(str, settings.values())).replace(".", "_")
    return [
        run | settings | {"key": run["key"] + ending}
        for scheme, crossing in zip(("sync_allreduce", "gossip"), crossings, strict=True)
        for run in arm(scheme, crossing, 0.9, workers=workers)
    ]


TUNED = {"axes": AXES, "target": TARGET, "settings": {"training.rate": "tuned"}}


def write_decided(folder, runs, trials=(), **about):
    """Write tables with a curve of 100 evaluations a run; return the folder."""
    crossings = {run["key"]: run.pop("crossing", None) for run in runs}
    write_reports(folder, runs, trials, **(TUNED | about))
    rows = [
        {"key": key, "samples": n, "updates": n, "seconds": 10.0 * n}
        | {"top1": 0.9 if crossing is not None and 10 * n > crossing else 0.5}
        for key, crossing in crossings.items()
        for n in range(1, 101)
    ]
    write_points(folder, {"curve": rows})
    return folder


def made_family():
    return [
        *arm("sync_allreduce", 801, 0.90, workers=1),
        *arm("gossip", 701, 0.90, workers=1),
        *arm("sync_allreduce", 301, 0.90),
        *arm("gossip", 201, 0.9002),
        *arm("local_sgd", 201, 0.895),
        *arm("mixed", 451, 0.85),
        *arm("async_parameter_server", None, 0.70),
    ]


def made_tuning(runs, edges, workers=4):
    """Rows of tuning.csv: the chosen trial of each scheme of `runs`, some at an edge by `edges`."""
    row = {"workers": workers, "seed": 9, "lr": 1, "momentum": 0, "top1": 0.9, "test_top1": 0.9}
    row |= {"status": "finished", "chance": 0.1, "chosen": "true"}
    return [
        {"key": f"{scheme}{workers}", "scheme": scheme} | row | {"at_edge": edges.get(scheme, "")}
        for scheme in dict.fromkeys(run["scheme"] for run in runs)
    ]
