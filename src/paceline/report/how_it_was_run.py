"""Says how a study was run: data, network, optimizer, search, cluster, machine, cost."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from paceline.analysis.frames import Frame
from paceline.analysis.tables import CURVE_IMAGES
from paceline.report.findings import StudyFindings
from paceline.report.number_format import bit_rate, count, plural, setting, size
from paceline.report.phrases import say
from paceline.report.words import COUNTED, scheme_name, value_words

_OF_CLUSTER: dict[str, Callable[[float], str]] = {
    "step_seconds": "{:g} s a step".format,
    "step_jitter": "jitter {:g}".format,
    "link.bandwidth": lambda value: f"links of {bit_rate(value)}",
    "link.latency": "latency {:g} s".format,
    "slow_factor": lambda value: say("slow_factor", value=value),
}
_OF_OPTIMIZER: dict[str, Callable[[Any], str]] = {
    "momentum": "momentum {:g}".format,
    "weight_decay": "weight decay {:g}".format,
    "schedule": "{} schedule".format,
    "lr_rule": lambda value: f"rate rule {str(value).replace('_', ' ')}",
    "ema_decay": lambda value: say("moving_average", decay=f"{value:g}"),
}
BANDWIDTH = "cluster.link.bandwidth"


def subtitle(findings: StudyFindings) -> str:
    """Return data, network, images per worker and seeds, as far as each has a single value."""
    runs = findings.tables.runs
    data, batch_size = _only(runs, "data").replace("_", " "), _only(runs, "batch_size")
    seeds = runs.groupby(["kind", *findings.tables.axes], dropna=False)["seed"].nunique()
    low, high = int(seeds.min()), int(seeds.max())
    parameters = runs["num_parameters"].dropna().unique() if "num_parameters" in runs else []
    return _joined(
        data,
        _only(runs, "model"),
        f"{count(parameters[0])} parameters" if len(parameters) == 1 else "",
        f"{batch_size} images per worker and step" if batch_size else "",
        plural(high, "seed") if low == high else f"{low} to {high} seeds",
    )


def how_it_was_run(findings: StudyFindings) -> list[tuple[str, str]]:
    """Return pairs of what and how, in words; what the tables do not say is left out."""
    settings: Mapping[str, Any] = findings.tables.about["settings"]
    return [pair for pair in _pairs(findings, settings) if pair[1]]


def _pairs(findings: StudyFindings, known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    runs, study = findings.tables.runs, findings.tables.about["study"]
    seeds = sorted(set(runs["seed"]))
    cores = _listed(runs, "hardware.cores")
    versions = [name for name in runs if name.startswith("versions.")]
    yield "Data", _listed(runs, "data")
    yield "Network", _network(runs)
    yield "Images per worker and step", _listed(runs, "batch_size")
    yield "Budget", _budget(runs, known)
    yield "Evaluations", _evaluations(known)
    for name in findings.of_size:
        yield f"{COUNTED.get(name, name)}s".capitalize(), _by_size(runs, name)
    yield "Optimizer", _joined("SGD", *_told(known, "training", _OF_OPTIMIZER)) if known else ""
    yield "Search", _search(findings)
    yield "Cluster", _cluster(runs, known)
    yield "Seeds", f"{len(seeds)}: {', '.join(map(setting, seeds))}"
    gpus = _listed(runs, "hardware.gpus").replace("[]", "no GPU")
    yield "Machine", _joined(_listed(runs, "hardware.cpu"), cores and f"{cores} cores", gpus)
    names = (f"{name.removeprefix('versions.')} {_listed(runs, name)}" for name in versions)
    yield "Software", _joined(*names)
    yield "Code", f"commit {_listed(runs, 'commit', 12)}"
    yield "Cost", cost(runs)
    yield "Run it again", f"paceline sweep {study}"


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _listed(runs: Frame, name: str, length: int | None = None) -> str:
    values = runs[name].dropna() if name in runs else []
    return ", ".join(dict.fromkeys(setting(value)[:length] for value in values))


def _only(runs: Frame, name: str) -> str:
    return _listed(runs, name) if name in runs and runs[name].nunique() == 1 else ""


def _told(
    known: Mapping[str, Any], group: str, forms: Mapping[str, Callable[[Any], str]]
) -> list[str]:
    """Say those settings of a group that have a value."""
    values = {name: known.get(f"{group}.{name}") for name in forms}
    return [forms[name](value) for name, value in values.items() if value not in (None, "")]


def _network(runs: Frame) -> str:
    if "num_parameters" not in runs:
        return _listed(runs, "model")
    pairs = runs.dropna(subset=["num_parameters"])[["model", "num_parameters"]].drop_duplicates()
    return ", ".join(f"{model}, {count(number)} parameters" for model, number in pairs.values)


def _budget(runs: Frame, known: Mapping[str, Any]) -> str:
    epochs = known.get("training.epochs")
    if epochs is not None and known.get("training.samples", epochs) is None:  # which take its place
        return say("budget_epochs", epochs=epochs)
    samples = runs["samples"].dropna() if "samples" in runs else ()
    return say("budget", low=min(samples), high=max(samples)) if len(samples) else ""


def _evaluations(known: Mapping[str, Any]) -> str:
    number, images = known.get("measurement.evaluations"), known.get(CURVE_IMAGES)
    return "" if number is None else say("evaluations", number=number, images=images)


def _by_size(runs: Frame, name: str) -> str:
    """Say a setting of each scheme that differs with the number of workers."""
    own = runs.dropna(subset=[name])[["scheme", "workers", name]].drop_duplicates()
    parts = []
    for scheme, rows in own.groupby("scheme", sort=False):
        pairs = [f"{setting(row[name])} for {row['workers']}" for _, row in rows.iterrows()]
        told = f"{', '.join(pairs)} workers"
        if rows[name].nunique() == 1:
            told = setting(rows[name].iloc[0])
        parts.append(f"{scheme_name(str(scheme))}: {told}")
    return "; ".join(parts)


def _search(findings: StudyFindings) -> str:
    tuning = findings.tables.tuning
    if tuning.empty:
        return ""
    low, high = _range(tuning["lr"])
    momenta = tuning["momentum"].dropna() if "momentum" in tuning else []
    return say(
        "search",
        trials=len(tuning),
        chosen=int((tuning["chosen"] == "true").sum()),
        low=low,
        high=high,
        momenta=_range(momenta) if len(momenta) else [],
        at=searched_with(findings.tables.tuned_at),
    )


def _range(values: Frame) -> list[str]:
    numbers = values.astype(float)
    return [f"{number:.3g}" for number in (numbers.min(), numbers.max())]


def searched_with(tuned_at: Mapping[str, Any]) -> str:
    """Say the settings that trials had in place of those of points, "" without any."""
    return " and ".join(value_words(name, value) for name, value in tuned_at.items())


def _cluster(runs: Frame, known: Mapping[str, Any]) -> str:
    free = "links cost nothing" if known and known.get(BANDWIDTH, 0) is None else ""
    words = _told({n: v for n, v in known.items() if _is_number(v)}, "cluster", _OF_CLUSTER)
    return _joined(_listed(runs, "cluster"), *words, free, _gradients(known))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _gradients(known: Mapping[str, Any]) -> str:
    """Say what a gradient is sent as, if not as that of the network that is trained."""
    name, num_bytes = known.get("workload.name"), known.get("workload.num_bytes")
    if num_bytes is not None:
        return f"gradients of {size(num_bytes)}"
    return f"gradients as of {name}" if name not in (None, "own") else ""


def cost(runs: Frame) -> str:
    """Say how many hours the points of runs.csv took; "" if it does not tell."""
    if "wall_seconds" not in runs:
        return ""
    hours = float((runs["wall_seconds"] / runs["jobs"].fillna(1)).sum()) / 3600
    failed = float((runs["status"] != "finished").mean())
    return say("cost", hours=hours, points=len(runs), failed=failed)
