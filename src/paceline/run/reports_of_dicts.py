"""THROW-AWAY: from the dicts that processes return today to typed reports.

Delete it as soon as processes return TrainingReport and ServerReport themselves.
"""

from dataclasses import fields
from typing import Any

from paceline.cluster.supervisor import LostWorker
from paceline.engine.reports import ServerReport, StrategyReport, WorkerReport
from paceline.measurement.reports import SnapshotScore, TrainingReport
from paceline.record.point import is_virtual

Reports = tuple[list[TrainingReport], list[ServerReport], list[LostWorker]]


def reports_of(returned: list[Any], config: dict[str, Any]) -> Reports:
    virtual = is_virtual(config)
    if virtual and len(returned) == 1:
        (returned,) = returned
    count = config["workers"]
    lost = [each for each in returned if isinstance(each, LostWorker)]
    alive = [each for each in returned[:count] if not isinstance(each, LostWorker)]
    servers = [_server(each) for each in returned[count:]]
    if virtual:
        return [_training(alive[0], [_worker(each) for each in alive], servers)], [], []
    return [_training(each, [_worker(each)], []) for each in alive], servers, lost


def _worker(seen: dict[str, Any]) -> WorkerReport:
    names = {"seconds_communicating": "seconds_communicate", "step_numbers": "numbers"}
    values = {each.name: names.get(each.name, each.name) for each in fields(WorkerReport)}
    report = WorkerReport(**{k: seen[name] for k, name in values.items() if name in seen})
    return report


def _server(seen: dict[str, Any]) -> ServerReport:
    return ServerReport(**{f.name: seen[f.name] for f in fields(ServerReport) if f.name in seen})


def _training(
    seen: dict[str, Any], workers: list[WorkerReport], servers: list[ServerReport]
) -> TrainingReport:
    shares = {name: seen[name] for name in ("counted", "updates", "diverged")}
    strategy = StrategyReport(**shares, workers=workers, servers=servers)
    own = {f.name: seen[f.name] for f in fields(TrainingReport) if f.name in seen}
    scores = [_score(score) for score in seen["scores"]]
    test = seen["test"] and _score(
        dict.fromkeys(("samples", "updates", "seconds", "real_seconds", "at_chance"), 0)
        | seen["test"]
    )
    return TrainingReport(**(own | {"strategy": strategy, "scores": scores, "test": test}))


def _score(values: dict[str, Any]) -> SnapshotScore:
    return SnapshotScore(**{f.name: values[f.name] for f in fields(SnapshotScore)})
