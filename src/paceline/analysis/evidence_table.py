"""Collects what studies found on accuracy into a table, from which plans of clusters are made."""

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from paceline.analysis.comparison import reference_arm
from paceline.analysis.configuration import OPTIMIZER, matching
from paceline.analysis.frames import Frame, as_csv, setting
from paceline.errors import SettingError
from paceline.prediction.evidence import FILE, TUNED, Observed
from paceline.record.report_files import read_about

if TYPE_CHECKING:
    from paceline.analysis.tables import Tables

_LEAST_SEEDS = 3
_EPOCHS, _RATE, _RULE = "training.epochs", "training.rate", "training.lr_rule"
_COMPRESSION = "scheme.compression"
_OF_TRAINING = ("model.shards", "global_batch_size", "training.precision", "training.samples")


def write_evidence(root: Path) -> None:
    """Renew the evidence in the package's source below `root`, if it is there."""
    path = root / "src/paceline/prediction" / FILE
    if path.is_file():
        path.write_text(as_csv(pd.DataFrame(map(asdict, find_evidence(root / "reports")))))


def find_evidence(
    reports: Path, known: Collection[Observed] = (), names: tuple[str, str] | None = None
) -> list[Observed]:
    """Return what the studies in the folder of all reports found; see Observed.

    `known`: observations of studies that need not be read again. `names`: model and data of the
    studies to read; None for all.

    These are configurations of at least three seeds that were compared with one worker. Where
    several have the same training, scheme, rate and number of workers, the one with the most seeds
    counts, and the first of these. Studies whose tables are missing or damaged are left out.
    """
    found, read = dict[tuple[object, ...], Observed](), {row.runs_digest for row in known}
    folders = sorted(path.parent for path in reports.glob("*/runs.csv"))
    for folder in (each for each in folders if names is None or _names(each) == names):
        for row in _of_study(folder, read):
            key = (row.training, row.scheme, row.rate, row.workers)
            if key not in found or row.seeds > found[key].seeds:
                found[key] = row
    return list(found.values())


def _names(folder: Path) -> tuple[object, object]:
    try:
        settings = read_about(folder, f"paceline sweep {folder.name}")["settings"]
    except SettingError:
        return None, None
    return settings.get("names.model"), settings.get("names.data")


def _of_study(folder: Path, known: Collection[str]) -> Iterator[Observed]:
    """Yield what a study found, unless its runs.csv has one of these digests."""
    from paceline.analysis.decision import decision as decide  # scipy takes a second
    from paceline.analysis.tables import read_tables

    digest = hashlib.sha256((folder / "runs.csv").read_bytes()).hexdigest()
    if digest in known:
        return
    try:
        tables = read_tables(folder)
    except SettingError:
        return
    budget = tables.about["settings"].get("training.samples")  # may be a part of an epoch
    if budget is not None or any(name in tables.axes for name in _OF_TRAINING):
        return
    decision = decide(tables)
    if not len(decision) or not {"workers", "batch_size"} <= set(decision):
        return
    even = decision.get("cluster.slow_workers", 0) == 0
    several = (decision["workers"] > 1) & (decision["n"] >= _LEAST_SEEDS)
    compared = decision["one_worker_top1_difference_mean"].notna() | (decision["n_diverged"] > 0)
    # a plan is for the usual optimizer, and for gradients that are sent as they are
    usual = decision.get(OPTIMIZER, 0) == reference_arm(tables.runs).get(OPTIMIZER, 0)
    if _COMPRESSION in decision:
        usual &= decision[_COMPRESSION].fillna("").isin(["none", ""])  # "": a scheme without it
    asked = even & several & compared & usual
    if _EPOCHS in decision:  # after as many images
        asked &= decision[_EPOCHS].isin(decision.loc[decision["workers"] == 1, _EPOCHS])
    for _, row in decision[asked].iterrows():
        yield _observed(folder.name, digest, tables, row)


def _observed(study: str, digest: str, tables: "Tables", row: Frame) -> Observed:
    from paceline.analysis.searches import searched_setting

    about = tables.about["settings"]
    rate, rule = (row.get(name, about.get(name)) for name in (_RATE, _RULE))
    own = matching(tables.runs, {name: row[name] for name in ("kind", "data", *tables.axes)})
    set_by_study = {
        name: own[name].iloc[0]
        for name in own
        if name.startswith("scheme.")
        and name not in ("scheme.servers", _COMPRESSION)
        and own[name].notna().all()
        and (own[name] != "").all()  # a text that other schemes alone have
    }
    if set_by_study.get("scheme.group_size") == 1:  # no groups
        del set_by_study["scheme.group_size"]
    chosen = [f"{name}={setting(value)}" for name, value in set_by_study.items()]
    chosen.append(searched_setting(tables, row))
    difference = [row[f"one_worker_top1_difference_{end}"] for end in ("mean", "low", "high")]
    return Observed(
        study=study,
        runs_digest=digest,
        data=row["data"],
        model=own["model"].iloc[0],
        num_weights=int(own["num_parameters"].dropna().iloc[0]),
        images=int(tables.runs["distinct_samples"].max()),
        epochs=float(row.get(_EPOCHS, about.get(_EPOCHS))),
        batch_size=int(row["batch_size"]),
        scheme=row["scheme"],
        settings=" ".join(filter(None, chosen)),
        rate=TUNED if rate in (TUNED, None) else str(rule),
        workers=int(row["workers"]),
        staleness=float(own["staleness_mean"].fillna(0).mean()),
        seeds=int(row["n"]),
        diverged=int(row["n_diverged"]),
        **dict(zip(("mean", "low", "high"), difference, strict=True)),
    )
