"""Says how a study was run: data, network, optimizer, search, cluster, machine, cost."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pandas as pd

from paceline.analysis.tables import CURVE_IMAGES, Frame
from paceline.report.findings import StudyFindings
from paceline.report.number_format import bit_rate, count, percent, plural, setting, size
from paceline.report.words import COUNTED, scheme_words, value_words

_CLUSTER = "cluster."
_OF_CLUSTER: dict[str, Callable[[float], str]] = {
    "step_seconds": "{:g} s a step".format,
    "step_jitter": "jitter {:g}".format,
    "link.bandwidth": lambda value: f"links of {bit_rate(value)}",
    "link.latency": "latency {:g} s".format,
    "slow_factor": lambda value: (
        "" if value == 1 else f"a slow worker takes {value:g} times as long"
    ),
}
BANDWIDTH = f"{_CLUSTER}link.bandwidth"


def how_it_was_run(findings: StudyFindings) -> list[tuple[str, str]]:
    """Return pairs of what and how, in words; what the tables do not say is left out."""
    settings: Mapping[str, Any] = findings.tables.about["settings"]
    return [pair for pair in _pairs(findings, settings) if pair[1]]


def _pairs(findings: StudyFindings, known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    runs, study = findings.tables.runs, findings.tables.about["study"]
    yield "Data", _listed(runs, "data")
    yield "Network", _network(runs)
    yield "Images per worker and step", _listed(runs, "batch_size")
    yield "Budget", _budget(runs, known)
    yield "Evaluations", _evaluations(known)
    for name in findings.of_size:
        yield f"{COUNTED.get(name, name)}s".capitalize(), _by_size(runs, name)
    yield "Optimizer", _optimizer(known)
    yield "Search", _search(findings)
    yield "Cluster", _cluster(runs, known)
    seeds = sorted(set(runs["seed"]))
    yield "Seeds", f"{len(seeds)}: {', '.join(map(setting, seeds))}"
    yield "Machine", _machine(runs)
    yield "Software", _software(runs)
    yield "Code", f"commit {_listed(runs, 'commit', 12)}"
    yield "Cost", _cost(runs)
    yield "Run it again", f"paceline sweep {study}"


def _listed(runs: Frame, name: str, length: int | None = None) -> str:
    if name not in runs:
        return ""
    return ", ".join(dict.fromkeys(setting(v)[:length] for v in runs[name].dropna()))


def _network(runs: Frame) -> str:
    if "num_parameters" not in runs:
        return _listed(runs, "model")
    pairs = runs.dropna(subset=["num_parameters"])[["model", "num_parameters"]].drop_duplicates()
    return ", ".join(
        f"{row.model}, {count(row.num_parameters)} parameters" for row in pairs.itertuples()
    )


def _budget(runs: Frame, known: Mapping[str, Any]) -> str:
    epochs = known.get("training.epochs")
    if epochs is not None and known.get("training.samples", epochs) is None:  # which take its place
        return f"{plural(epochs, 'epoch')} over all workers together"
    samples = runs["samples"].dropna() if "samples" in runs else pd.Series(dtype=float)
    if samples.empty:
        return ""
    low, high = samples.min(), samples.max()
    both = count(low) if low == high else f"{count(low)} to {count(high)}"
    return f"{both} images over all workers together"


def _evaluations(known: Mapping[str, Any]) -> str:
    number, images = known.get("measurement.evaluations"), known.get(CURVE_IMAGES)
    if number is None:
        return ""
    if images is None or number < 2:
        return f"{number} a run, on all validation images"
    return (
        f"{number} a run; all but the last on {count(images)} validation images, the same for all, "
        "by which the target is set and reached; the last on all"
    )


def _by_size(runs: Frame, name: str) -> str:
    """Say a setting of each scheme that differs with the number of workers."""
    own = runs.dropna(subset=[name])[["scheme", "workers", name]].drop_duplicates()
    parts = []
    for scheme, rows in own.groupby("scheme", sort=False):
        pairs = [f"{setting(row[name])} for {row['workers']}" for _, row in rows.iterrows()]
        told = f"{', '.join(pairs)} workers"
        if rows[name].nunique() == 1:
            told = setting(rows[name].iloc[0])
        parts.append(f"{scheme_words({'scheme': scheme})}: {told}")
    return "; ".join(parts)


def _optimizer(known: Mapping[str, Any]) -> str:
    if not known:
        return ""
    parts = ["SGD"]
    for name, words in (("momentum", "momentum"), ("weight_decay", "weight decay")):
        if (value := known.get(f"training.{name}")) is not None:
            parts.append(f"{words} {value:g}")
    if schedule := known.get("training.schedule"):
        parts.append(f"{schedule} schedule")
    if rule := known.get("training.lr_rule"):
        parts.append(f"rate rule {str(rule).replace('_', ' ')}")
    if (decay := known.get("training.ema_decay")) is not None:
        parts.append(f"moving average of the weights with decay {decay:g} evaluated beside them")
    return ", ".join(parts)


def _search(findings: StudyFindings) -> str:
    tuning = findings.tables.tuning
    if tuning.empty:
        return ""
    lrs, number = tuning["lr"].astype(float), len(tuning)
    chosen = int((tuning["chosen"] == "true").sum())
    text = f"{number} trials for {plural(chosen, 'configuration')}"
    text += f", rates {lrs.min():.3g} to {lrs.max():.3g}"
    if "momentum" in tuning and tuning["momentum"].notna().any():
        momenta = tuning["momentum"].astype(float)
        text += f", momentum {momenta.min():.3g} to {momenta.max():.3g}"
    if elsewhere := searched_with(findings.tables.tuned_at):
        text += f"; all with {elsewhere}, whose best the others take, too"
    return f"{text}; best by validation; the page reports other seeds"


def searched_with(tuned_at: Mapping[str, Any]) -> str:
    """Say the settings that trials had in place of those of points, "" without any."""
    return " and ".join(value_words(name, value) for name, value in tuned_at.items())


def _cluster(runs: Frame, known: Mapping[str, Any]) -> str:
    parts = [_listed(runs, "cluster")]
    for name, words in _OF_CLUSTER.items():
        value = known.get(_CLUSTER + name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            parts.append(words(value))
    if known and known.get(BANDWIDTH, 0) is None:
        parts.append("links cost nothing")
    parts.append(_gradients(known))
    return ", ".join(part for part in parts if part)


def _gradients(known: Mapping[str, Any]) -> str:
    """Say what a gradient is sent as, if not as that of the network that is trained."""
    name, num_bytes = known.get("workload.name"), known.get("workload.num_bytes")
    if num_bytes is not None:
        return f"gradients of {size(num_bytes)}"
    return f"gradients as of {name}" if name not in (None, "own") else ""


def _machine(runs: Frame) -> str:
    cpu, cores = _listed(runs, "hardware.cpu"), _listed(runs, "hardware.cores")
    gpus = _listed(runs, "hardware.gpus").replace("[]", "no GPU")
    return ", ".join(part for part in (cpu, f"{cores} cores" if cores else "", gpus) if part)


def _software(runs: Frame) -> str:
    names = [name for name in runs if name.startswith("versions.")]
    return ", ".join(f"{name.removeprefix('versions.')} {_listed(runs, name)}" for name in names)


def _cost(runs: Frame) -> str:
    if "wall_seconds" not in runs:
        return ""
    hours = float((runs["wall_seconds"] / runs["jobs"].fillna(1)).sum()) / 3600
    failed = float((runs["status"] != "finished").mean())
    rest = f", of which {percent(failed)} did not finish" if failed else ""
    return f"{hours:.1f} hours for {plural(len(runs), 'point')}{rest}, without tuning"
