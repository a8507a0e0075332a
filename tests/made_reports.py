"""Tables and archive as a sweep leaves them, with numbers made up. Never write them to reports/."""

import csv
import hashlib
import io
import itertools
import json

from paceline.analysis.configuration_table import configuration_table, known
from paceline.record.archive import ARCHIVE, read_archive, write_files
from paceline.record.rows import POINT_TABLES, TUNING
from paceline.report.findings import read_findings
from paceline.report.page import report

SPEED = {"sync_allreduce": (8000, 12000), "async_parameter_server": (7900, 15000)}
TWO = tuple(SPEED)
for _scheme in ("gossip", "local_sgd", "mixed", "independent"):
    SPEED[_scheme] = SPEED["sync_allreduce"]
RATES = {("sync_allreduce", 1): 1000, ("sync_allreduce", 2): 1500}
RATES |= {("async_parameter_server", 1): 1000, ("async_parameter_server", 2): 1800}
SAMPLES = 96000
PHASES = ("seconds_data", "seconds_compute", "seconds_communicate")


def make_run(scheme="sync_allreduce", workers=1, batch_size=32, seed=0, **changes):
    """A row of runs.csv, of a finished point; `changes` are other columns."""
    noise = wiggle(scheme, workers, batch_size, seed)
    speed = SPEED[scheme][min(workers, 2) - 1] * (1 + noise) * (1.2 if batch_size > 32 else 1)
    stale = scheme == "async_parameter_server" and workers > 1
    top1 = 0.85 + noise / 2 - 0.01 * (batch_size > 32) - 0.006 * stale
    return {
        "status": "finished",
        "reason": "",
        "kind": "measured",
        "study": "made",
        "key": digest(scheme, workers, batch_size, seed)[:12],
        "data": "fashion_mnist_subset",
        "model": "small_cnn",
        "scheme": scheme,
        "cluster": "local",
        "workers": workers,
        "servers": int(scheme == "async_parameter_server"),
        "batch_size": batch_size,
        "seed": seed,
        "jobs": 1,
        "samples": SAMPLES,
        "dropped_samples": 0,
        "updates": SAMPLES // batch_size,
        "seconds": SAMPLES / speed,
        "images_per_second": speed,
        "top1": top1,
        "test_top1": top1 - 0.004,
        "validation_loss": 0.42 - 0.01 * seed,
        "staleness_mean": 0.9 if stale else 0.0,
        "evaluated": "weights shared by all workers",
        "certificate": ("asynchronous" if stale else "synchronous")
        if workers > 1
        else "one worker",
        "late_steps": 0,
        "lost_workers": "[]",
        "started": "",
        "hardware.cpu": "A Made-up Processor",
        "hardware.cores": 4,
        "hardware.memory_bytes": 2**34,
        "hardware.gpus": "[]",
        "versions.python": "3.11.2",
        "versions.torch": "2.15.0",
        "num_parameters": 7674,
        "distinct_samples": 10000,
        "lr": 0.05,
        "momentum": 0.9,
        "commit": "0123456789abcdef",
        "source_digest": "0123",
    } | changes


def digest(*point):
    return hashlib.sha256(repr(point).encode()).hexdigest()


def wiggle(*point):
    """Between -0.01 and 0.01, as if from one seed to the next."""
    return (int(digest(*point)[:4], 16) / 0xFFFF - 0.5) / 50


def fail(run, status="failed", reason="worker 1 ended with exit code 1"):
    """The row as of a point that failed or did not train."""
    lost = ("images_per_second", "seconds", "top1", "test_top1", "validation_loss")
    kept = dict.fromkeys((*lost, "staleness_mean")) if status == "failed" else {}
    return run | kept | {"status": status, "reason": reason}


def made_runs():
    """2 schemes x workers 1, 2 x batch 32, 128 x 3 seeds; one point diverged, one failed."""
    axes = itertools.product(TWO, (1, 2), (32, 128), (0, 1, 2))
    runs = [make_run(*point) for point in axes]
    runs[-1] = fail(runs[-1], "diverged", "accuracy at chance: top-1 is 0.100") | {"top1": 0.1}
    runs[-4] = fail(runs[-4])
    return runs


def made_two_schemes(seeds=(0, 1, 2), spread=1.0, accuracy=0.8, schemes=("sync", "async")):
    """Rates of RATES and top-1 of 0.9 (asynchronous: `accuracy`), with `spread` between seeds."""
    return [
        make_run(
            scheme,
            workers,
            32,
            seed,
            images_per_second=rate + spread * seed * workers,
            top1=(accuracy if scheme.startswith("async") else 0.9) + seed / 1000,
            test_top1=(accuracy if scheme.startswith("async") else 0.9) + seed / 1000,
        )
        for (scheme, workers), rate in RATES.items()
        for seed in seeds
        if scheme.startswith(schemes)
    ]


def make_curve(run, rows=8):
    """Evaluations of a run: top-1 rises to the run's own, evenly spaced in samples."""
    if run["top1"] is None:
        return []
    return [
        {
            "key": run["key"],
            "samples": SAMPLES * n // rows,
            "updates": n,
            "seconds": run["seconds"] * n / rows,
            "train_loss": 1 / n,
            "validation_loss": 1.1 / n,
            "top1": run["top1"] * (1 - 0.5 ** (1.2 * n)) / (1 - 0.5 ** (1.2 * rows)),
            "top5": 0.99,
        }
        for n in range(1, rows + 1)
    ]


def make_staleness(run):
    if not run["servers"] or run["seconds"] is None:
        return []
    pushes = {0: 300, 1: 2300, 2: 390, 3: 10} if run["workers"] > 1 else {0: 3000}
    return [
        {"key": run["key"], "server": 0, "staleness": s, "pushes": n} for s, n in pushes.items()
    ]


def make_phases(run):
    if run["seconds"] is None:
        return []
    share = (0.02, 0.78, 0.20) if run["workers"] > 1 else (0.02, 0.93, 0.05)
    spent = {name: run["seconds"] * part for name, part in zip(PHASES, share, strict=True)}
    about = {"key": run["key"], "steps": 10, "samples": 320, "bytes_sent": 1, "bytes_received": 2}
    return [about | {"worker": worker} | spent for worker in range(run["workers"])]


MAKE = {
    "curve": make_curve,
    "staleness": make_staleness,
    "phases": make_phases,
    "timeline": lambda run: [],
    "test": lambda run: [],  # as of code that did not write it
}


def write_reports(folder, runs=None, trials=(), **about):
    """Write the files that are collected from records, and their archive; returns the folder.

    `trials`: rows of tuning.csv.
    """
    runs = made_runs() if runs is None else runs
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder / "runs.csv", list(dict.fromkeys(n for run in runs for n in run)), runs)
    names = [table.name for table in POINT_TABLES]
    write_points(folder, {name: [row for run in runs for row in MAKE[name](run)] for name in names})
    write_rows(folder / "tuning.csv", list(trials[0]) if trials else ["key", *TUNING], trials)
    about = {
        "study": folder.name,
        "axes": ["scheme", "workers", "batch_size", "seed"],
        "question": "Does a second worker help, and what does asynchrony cost in accuracy?",
        "num_points": len(runs),
        "missing": [],
        "unfit": {},
        "margin": 1.0,
        "target": None,
        "settings": {},
        "tuning": [],
    } | about
    (folder / "study.json").write_text(json.dumps(about, indent=1) + "\n")
    return folder


def write_points(folder, tables):
    """Put tables of records into the archive, each as rows with the keys of their points."""
    archive = folder / ARCHIVE
    files = dict(read_archive(archive)) if archive.exists() else {}
    for name, rows in tables.items():
        by_key = {}
        for row in rows:
            by_key.setdefault(row["key"], []).append({n: v for n, v in row.items() if n != "key"})
        files[f"{name}.csv"] = {key: as_csv(of) for key, of in by_key.items()}
    write_files(archive, files)


def as_csv(rows):
    text = io.StringIO()
    write_csv(text, list(rows[0]), rows)
    return text.getvalue().encode()


def concluded(tables, column="n"):
    """The rows of the table of configurations of which this column is known."""
    return known(configuration_table(tables), column)


def write_rows(path, columns, rows):
    with path.open("w", newline="") as file:
        write_csv(file, columns, rows)


def write_csv(file, columns, rows):
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def write_page(folder):
    """Write the report of a study; return the path of its page."""
    return report(read_findings(folder), folder)
