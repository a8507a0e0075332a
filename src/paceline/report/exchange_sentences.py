"""Says which collective to use, and what to know before believing it."""

from paceline.analysis.configuration import groups
from paceline.analysis.exchanges import Exchanges
from paceline.analysis.recommendation import NO_DIFFERENCE
from paceline.analysis.tables import Frame
from paceline.report.number_format import count, decimals, general, plural, setting, with_interval


def recommended(exchanges: Exchanges, recommendation: Frame) -> list[str]:
    """Return a sentence per cluster, kind and number of bytes, on all numbers of workers."""
    texts = []
    for group, rows in groups(recommendation, [*_cluster(exchanges), "num_bytes"]):
        said = "; ".join(_with_workers(row) for _, row in rows.iterrows())
        texts.append(f"{place(exchanges, group)}, {count(group['num_bytes'])} bytes: {said}.")
    return texts or ["No exchange has finished, so nothing can be recommended."]


def place(exchanges: Exchanges, row: Frame) -> str:
    """Name the cluster of a row with its kind, and the settings by which clusters differ."""
    parts = [f"{name} {setting(row[name])}" for name in exchanges.facets]
    return ", ".join([f"{row['cluster']} ({row['kind']})", *parts])


def exchange_cautions(exchanges: Exchanges) -> list[str]:
    """Name exchanges that failed, and say where processes shared cores."""
    rows = exchanges.rows
    texts = [
        f"{row['collective']}, {plural(int(row['workers']), 'worker')}, "
        f"{count(row['num_bytes'])} bytes, {place(exchanges, row)} failed: {row['reason']}"
        for _, row in rows[rows["status"] == "failed"].iterrows()
    ]
    crowded = rows[rows["workers"] > rows["hardware.cores"]]
    if len(crowded):
        cores = ", ".join(general(value) for value in sorted(set(crowded["hardware.cores"])))
        texts.append(
            f"{crowded['key'].nunique()} of {plural(rows['key'].nunique(), 'exchange')} had more "
            f"processes than cores ({cores}): where links are fast, cores decide."
        )
    return texts


def _cluster(exchanges: Exchanges) -> list[str]:
    return ["cluster", "kind", *exchanges.facets]


def _with_workers(row: Frame) -> str:
    workers = plural(int(row["workers"]), "worker")
    if not row["runner_up"]:
        return f"{workers} {row['collective']}, the only one"
    ratio = with_interval(row, "ratio", decimals)
    if row["verdict"] == NO_DIFFERENCE:
        return f"{workers} {row['collective']} or {row['runner_up']}, {NO_DIFFERENCE}: {ratio}"
    return f"{workers} {row['collective']}, {row['runner_up']} takes {ratio} times as long"
