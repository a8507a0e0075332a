"""Says schemes, settings and their values in the reader's words, not in configuration keys."""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

import pandas as pd

from paceline.analysis.frames import Entry, Frame, Row
from paceline.report.number_format import bit_rate, plural, setting, size

_NAME = re.compile(r'"""([^:(.\n]+)')
SETTINGS = {
    "batch_size": "images per worker and step",
    "global_batch_size": "images per step, all workers",
    "cluster.slow_workers": "slow workers",
    "cluster.fault": "fault:",
    "cluster.link.bandwidth": "bytes/s of a link",
    "cluster": "cluster",
    "cluster.step_seconds": "seconds of a step",
    "cluster.server_seconds": "seconds of an update at a server",
    "cluster.nodes": "nodes",
    "model": "network",
    "data": "data set",
    "training.samples": "images in all",
    "training.precision": "precision",
    "training.rate": "learning rate",
    "training.lr": "learning rate",
    "training.momentum": "momentum",
    "scheme.period": "steps between means",
    "scheme.group_size": "workers in a group",
    "model.shards": "processes of a worker",
    "model.split": "layers divided",
    "workload": "network that gradients stand for",
    "workload.num_bytes": "bytes of a gradient",
    "measurement.repeat": "repetition",
}
COUNTED = {
    "scheme.backup_workers": "backup worker",
    "scheme.servers": "server",
}
_VALUES = {
    ("training.rate", "tuned"): "tuned rate",
    ("training.rate", "by_rule"): "rate by rule",
    ("cluster.slow_workers", 0): "even workers",
    ("cluster.slow_workers", 1): "one slow worker",
    ("training.precision", "64-true"): "64 bits",
    ("training.precision", "32-true"): "32 bits",
}


@cache
def scheme_name(scheme: str) -> str:
    """Return the name of a scheme in words, as in "local SGD".

    It is that with which the file of the scheme begins, up to the first colon, full stop or
    parenthesis; of a scheme from elsewhere it is the name of its configuration file.
    """
    path = files("paceline.scheme") / f"{scheme}.py"
    found = _NAME.match(path.read_text()) if path.is_file() else None
    name = found[1].strip() if found else scheme.replace("_", " ")
    return name[:1].lower() + name[1:]


def scheme_words(row: Frame | Row) -> str:
    """Name the scheme of a row, with those of its settings that the study sets."""
    parts = [
        _setting_words(name, row[name])
        for name in dict(row)
        if name.startswith("scheme.") and not pd.isna(row[name]) and row[name] != 0
    ]
    shards = row.get("model.shards", 1)
    if shards > 1:
        parts.append(f"{plural(int(row['workers']), 'worker')} of {shards:.0f} processes")
        if isinstance(row.get("model.split"), str):
            parts.append(row["model.split"].replace("_", " "))
    return ", ".join([scheme_name(str(row["scheme"])), *parts])


def configuration_words(row: Frame | Row, names: Iterable[str]) -> str:
    """Name the scheme of a row, then those settings in `names` that are not the scheme's own."""
    others = [name for name in names if name != "scheme" and not name.startswith("scheme.")]
    return ", ".join([scheme_words(row), *(value_words(name, row[name]) for name in others)])


def _setting_words(name: str, value: Entry) -> str:
    if name in COUNTED:
        return plural(int(value), COUNTED[name])
    return f"{SETTINGS.get(name, name.removeprefix('scheme.'))} {setting(value)}"


def value_words(name: str, value: Entry) -> str:
    """Say a setting with its value, as in "one slow worker" or "32 images per worker and step"."""
    if name == "processes":
        return "1 process" if value == 1 else f"{value:.0f} processes"
    if name == "workers":
        return plural(int(value), "worker")
    if (name, value) in _VALUES:
        return _VALUES[name, value]
    words = SETTINGS.get(name, name)
    if name.endswith(".bandwidth"):
        return "links without a limit" if pd.isna(value) else f"links of {bit_rate(value)}"
    if pd.isna(value):
        return f"{words}: default"
    if name.endswith("num_bytes"):
        return f"gradients of {size(value)}"
    if isinstance(value, str):
        return f"{words} {value.replace('_', ' ')}"
    return f"{value:,g} {words}"
