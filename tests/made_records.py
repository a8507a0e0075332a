"""Records as a run leaves them, with numbers made up."""

import csv
import json

import yaml

from paceline.record.point_config import PointConfig, is_virtual
from paceline.record.rows import POINT_TABLES

# as of code before `real_seconds` and timelines, which readers must still bear
CURVE = "samples,updates,seconds,train_loss,validation_loss,top1,top5\n"
TABLES = {table.name: ",".join(table.columns) + "\n" for table in POINT_TABLES}

# a tuning whose trials are three rates, and one final run where the best rate is the middle one
SEARCH = {
    "effective_rate": 0.5,
    "momentum": [0.9],
    "rates": 3,
    "finalists": 1,
    "repeats": 1,
    "seed": 100,
}
NAMES = {
    "data": "synthetic",
    "model": "small_cnn",
    "scheme": "sync_allreduce",
    "cluster": "local",
}


def make_record(folder, config, *, key=None, rows=2, **changes):
    """Write a record of `config` with `rows` rows of curve; `changes` go into result.json."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config.values)))
    result = made_result(config, key or folder.name, rows) | changes
    found = [usual if result.get(name) is None else result[name] for name, usual in SCORES.items()]
    scores = ["" if value is None else str(value) for value in found]
    times = [f"{64 * n},{2 * n},{n / 2}," for n in range(1, rows + 1)]
    (folder / "curve.csv").write_text(CURVE + "".join(f"{t}{','.join(scores)}\n" for t in times))
    served = "".join(f"{server},1,12\n" for server in range(result["servers"]))
    (folder / "staleness.csv").write_text(TABLES["staleness"] + served)
    step = f"2,{2 * result['batch_size']},0.1,0.2,0.3,1000,2000,0,0"
    phases = "".join(f"{worker},{step}\n" for worker in range(result["workers"]))
    (folder / "phases.csv").write_text(TABLES["phases"] + phases)
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


SCORES = {"train_loss": 0.5, "validation_loss": None, "top1": 0.5, "top5": 1.0}


def made_result(config, key, rows=2):
    return {
        "status": "finished",
        "reason": "",
        "kind": "virtual" if is_virtual(config.values.get("cluster")) else "measured",
        "study": config.study,
        "key": key,
        **config.names,
        "workers": config.values["workers"],
        "servers": 0,
        "batch_size": config.values["batch_size"],
        "seed": config.seed,
        "samples": 64 * rows,
        "distinct_samples": 64,
        "seconds": rows / 2,
        "top1": 0.5,
        "validation_loss": None,
        **dict.fromkeys(("dropped_samples", "late_steps"), 0),
        "num_parameters": 98,
        "started": "2026-01-02T03:04:05+00:00",
        "wall_seconds": rows / 2 + 3,
        "hardware": {"cpu": "A Made-up Processor", "cores": 2, "gpus": []},
        "versions": {"torch": "2.15.0"},
        "commit": "abc",
        "source_digest": "0123",
    }


def made_config(study="made", *, workers=1, seed=0, **more):
    values = {
        "study": study,
        "workers": workers,
        "batch_size": 32,
        "seed": seed,
        "names": NAMES,
        "data": {"_target_": "paceline.data.synthetic.Synthetic"},
        **more,
    }
    return PointConfig(values)
