"""Says how a study was run: data, network, optimizer, search, cluster, target, machine, cost."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from paceline.analysis.frames import Frame, Row
from paceline.analysis.tables import CURVE_IMAGES
from paceline.report.findings import StudyFindings
from paceline.report.number_format import count, listed, plural, setting
from paceline.report.words import configuration_words, counted, say, scheme_name, value_words

BANDWIDTH, JITTER = "cluster.link.bandwidth", "cluster.step_jitter"
SLOW_FACTOR = "cluster.slow_factor"
# said by phrases of the name
_CLUSTER = ("cluster.step_seconds", JITTER, BANDWIDTH, "cluster.link.latency", SLOW_FACTOR)
_OPTIMIZER = ("momentum", "weight_decay", "schedule", "lr_rule", "ema_decay")


def subtitle(findings: StudyFindings) -> str:
    """Return data set, network, images of a step and number of seeds as a line of text.

    A property that is not the same in all points is left out.
    """
    runs = findings.tables.runs
    seeds = runs.groupby(["kind", *findings.tables.axes], dropna=False)["seed"].nunique()
    low, high = int(seeds.min()), int(seeds.max())
    batch_size = _only(runs, "batch_size")
    return _joined(
        _only(runs, "data").replace("_", " "),
        _only(runs, "model"),
        f"{batch_size} images per worker and step" if batch_size else "",
        plural(high, "seed") if low == high else f"{low} to {high} seeds",
    )


def how_it_was_run(findings: StudyFindings) -> list[tuple[str, str]]:
    """Return pairs of a name and words that say how the study was run, where this is known."""
    return [pair for pair in _pairs(findings, findings.tables.about["settings"]) if pair[1]]


def cost(runs: Frame, *, searched: bool) -> str:
    """Return a phrase on how many hours the points of runs.csv took; "" if this is unknown.

    Points that were retimed took as good as none.
    """
    if "wall_seconds" not in runs:
        return ""
    trained = runs[runs["retimed_from"].fillna("") == ""] if "retimed_from" in runs else runs
    hours = float((trained["wall_seconds"] / trained["jobs"].fillna(1)).sum()) / 3600
    return say("cost", hours=hours, points=len(trained), searched=searched)


def target_metric(findings: StudyFindings) -> str:
    """Return the metric of the target: top1, top5, or loss, of which smaller is better."""
    return (findings.tables.about["target"] or {"metric": "top1"})["metric"]


def validation_images(findings: StudyFindings) -> str:
    """Name the images on which targets are set and reached, as in "2,000 validation images"."""
    return say("validation_images", images=findings.tables.about["settings"].get(CURVE_IMAGES))


def scored_images(findings: StudyFindings) -> str:
    """Name the images of which top-1 is told: test images, if runs were scored on them."""
    is_tested = findings.tables.finished["test_top1"].notna().any()
    return "test images" if is_tested else validation_images(findings)


def target_origin(findings: StudyFindings) -> str:
    """Say where the target comes from, in words that continue "the target is".

    Returns "" if the study has no target.
    """
    set_by = findings.known("target").get("target_set_by", pd.Series()).unique()
    if not len(set_by):
        return ""
    asked = dict(findings.tables.about["target"] or {})
    if "value" not in asked:
        asked["baseline"] = "; ".join(_configuration(each) for each in set_by)
    return say("target_origin", asked, metric=target_metric(findings))


def _configuration(keys: str) -> str:
    """Say in words a one-worker configuration that is given as a text of keys and values."""
    scheme, *settings = keys.split()
    row: Row = {"scheme": scheme}
    for name, _, value in (each.partition("=") for each in settings):
        row[name] = value
        with suppress(ValueError):
            row[name] = float(value)
    return configuration_words(row, [n for n in row if n != "workers" and not pd.isna(row[n])])


def _pairs(findings: StudyFindings, known: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    runs = findings.tables.runs
    seeds = sorted(set(runs["seed"]))
    versions = [f"versions.{name}" for name in ("python", "paceline", "torch")]
    is_users = not str(known.get("data._target_", "paceline.")).startswith("paceline.")
    followed = not is_users or _listed(runs, "data_digest")
    yield "Data", _joined(_listed(runs, "data"), "" if followed else say("unfollowed_data"))
    networks = (f"{model}, {count(number)} parameters" for model, number in _networks(runs).values)
    yield "Network", _joined(*networks) or _listed(runs, "model")
    yield "Images per worker and step", _listed(runs, "batch_size")
    yield "Budget", _budget(runs["samples"].dropna(), known)
    if (number := known.get("measurement.evaluations")) is not None:
        yield "Evaluations", say("evaluations", number=number, images=known.get(CURVE_IMAGES))
    for name in findings.of_size:
        nouns = counted(name, 2).removeprefix("2 ") or f"{name}s"
        yield nouns.capitalize(), _by_size(runs, name)
    if known:
        yield "Optimizer", _optimizer(runs, known)
    yield "Search", _search(findings)
    yield "Cluster", _cluster(runs, known)
    is_range = seeds == [*range(seeds[0], seeds[-1] + 1)]
    yield "Seeds", f"{seeds[0]} to {seeds[-1]}" if is_range else listed(map(setting, seeds))
    yield "Machine", _machines(runs)
    names = (f"{n.removeprefix('versions.')} {_listed(runs, n)}" for n in versions if n in runs)
    yield "Software", _joined(*names)
    commits = _listed(runs, "commit", 12)
    yield "Code", f"commit {commits}" if commits else ""
    yield "Cost", cost(runs, searched=len(findings.tables.tuning) > 0)


def _optimizer(runs: Frame, known: Mapping[str, Any]) -> str:
    """Name the optimizers that ran, with their options and the schedule of the learning rate."""
    names = _listed(runs, "optimizer")
    if not names:  # records of earlier code; then Paceline's own modules had SGD unless they say so
        is_ours = str(known.get("model._target_", "paceline.")).startswith("paceline.")
        usual = "torch.optim.SGD" if is_ours else ""
        names = str(known.get("model.optimizer._target_", usual)).rpartition(".")[2]
    elif runs["momentum"].isna().all():
        known = {**known, "training.momentum": None}
    if schedulers := _listed(runs, "scheduler"):  # then the run has none of its own
        known = {**known, "training.schedule": None, "training.lr_rule": None}
        schedulers = say("scheduler", names=schedulers)
    return _joined(names, schedulers, *_told(known, [f"training.{n}" for n in _OPTIMIZER]))


def _networks(runs: Frame) -> Frame:
    """Return each network with its number of parameters, from points that know both."""
    return runs.reindex(columns=["model", "num_parameters"]).dropna().drop_duplicates()


def _machines(runs: Frame) -> str:
    """Describe the machine; if there are several, each one, and how many points it made."""
    found = dict[str, int]()
    names = [f"hardware.{name}" for name in ("cpu", "cores", "gpus")]
    for cpu, cores, gpus in runs.reindex(columns=names).dropna().itertuples(index=False):
        cards = ", ".join(json.loads(gpus)) or "no GPU"
        machine = _joined(str(cpu), f"{cores:.0f} cores", cards)
        found[machine] = found.get(machine, 0) + 1
    if len(found) < 2:
        return next(iter(found), "")
    return "; ".join(f"{machine}: {plural(number, 'run')}" for machine, number in found.items())


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _listed(runs: Frame, name: str, length: int | None = None) -> str:
    values = runs[name].dropna() if name in runs else []
    texts = dict.fromkeys(setting(value)[:length] for value in values)
    return ", ".join(text for text in texts if text)


def _only(runs: Frame, name: str) -> str:
    return _listed(runs, name) if runs[name].nunique() == 1 else ""


def _told(known: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the phrases of those settings in `names` that have a value."""
    values = {name: known.get(name) for name in names}
    return [say(name, value=value) for name, value in values.items() if value not in (None, "")]


def _budget(samples: Frame, known: Mapping[str, Any]) -> str:
    epochs = known.get("training.epochs")
    if epochs is not None and known.get("training.samples", epochs) is None:  # which take its place
        return say("budget_epochs", epochs=epochs)
    return say("budget", low=min(samples), high=max(samples)) if len(samples) else ""


def _by_size(runs: Frame, name: str) -> str:
    """Say for each scheme how a setting depends on the number of workers."""
    own = runs.dropna(subset=[name])[["scheme", "workers", name]].drop_duplicates()
    parts = []
    for scheme, rows in own.groupby("scheme", sort=False):
        pairs = [f"{setting(row[name])} for {row['workers']}" for _, row in rows.iterrows()]
        is_one = rows[name].nunique() == 1
        told = setting(rows[name].iloc[0]) if is_one else f"{', '.join(pairs)} workers"
        parts.append(f"{scheme_name(str(scheme))}: {told}")
    return "; ".join(parts)


def _search(findings: StudyFindings) -> str:
    tuning = findings.tables.tuning
    if tuning.empty:
        return ""
    numbers = {"trials": len(tuning), "chosen": (tuning["chosen"] == "true").sum()}
    for name in ("lr", "momentum"):
        numbers[name] = list(tuning[name].dropna().astype(float))
    tuned_at = findings.tables.tuned_at.items()
    return say("search", numbers, at=" and ".join(value_words(*each) for each in tuned_at))


def _cluster(runs: Frame, known: Mapping[str, Any]) -> str:
    """Name the clusters with their times, and the size of gradients if it is emulated."""
    numbers = [name for name in _CLUSTER if isinstance(known.get(name), int | float)]
    if known.get("cluster.slow_workers") == 0:
        numbers = [name for name in numbers if name != SLOW_FACTOR]
    if set(runs["kind"]) == {"measured"}:  # whose steps vary as they do
        numbers = [name for name in numbers if name != JITTER]
    free = value_words(BANDWIDTH, None) if known and known.get(BANDWIDTH, 0) is None else ""
    workload, num_bytes = known.get("workload.name", "own"), known.get("workload.num_bytes")
    gradients = say("gradients", workload=workload, num_bytes=num_bytes)
    return _joined(_listed(runs, "cluster"), *_told(known, numbers), free, gradients)
