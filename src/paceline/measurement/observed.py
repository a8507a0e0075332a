"""From what the processes of a point saw to the record of the point."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from paceline.cluster.supervisor import LostWorker
from paceline.measurement.certificate import Certificate, certificate
from paceline.measurement.images_seen import num_distinct
from paceline.measurement.throughput import images_per_second

Seen = dict[str, Any]
TIMELINE = ("worker", "phase", "start", "end")  # columns


class Findings:
    """Results and tables of a point whose processes came to their end.

    `workers`, `servers`: what each process returned; `lost`: workers that could not. Of these the
    servers tell steps; what nobody saw is null: distinct samples, and images/s of all workers.
    """

    def __init__(
        self,
        config: dict[str, Any],
        workers: list[Seen],
        servers: list[Seen],
        lost: Sequence[LostWorker] = (),
    ) -> None:
        self._config = config
        self._lost = [self._loss(each, servers[0]) for each in lost]
        self._workers = workers
        scores = [score for seen in workers for score in seen["scores"]]
        self._scores = sorted(scores, key=lambda score: score["samples"])
        self._servers = servers

    def curve(self) -> list[dict[str, Any]]:
        """One row per snapshot, by samples."""
        losses = self._losses()
        rows = []
        for score in self._scores:
            rows.append(
                {
                    "samples": score["samples"],
                    "updates": score["updates"],
                    "seconds": round(score["seconds"], 4),
                    "train_loss": losses.get(score["samples"]),
                    "validation_loss": _finite(score["loss"]),
                    "top1": score["top1"],
                    "top5": score["top5"],
                    "real_seconds": round(score["real_seconds"], 4),
                }
            )
        return rows

    def staleness(self) -> list[dict[str, int]]:
        rows = []
        for server in self._servers:
            counts = Counter(staleness for _, staleness in server["pushes"])
            rows += [
                {"server": server["server"], "staleness": staleness, "pushes": counts[staleness]}
                for staleness in sorted(counts)
            ]
        return rows

    def phases(self) -> list[dict[str, Any]]:
        return [self._phases_of(seen) for seen in self._workers]

    def timeline(self) -> list[dict[str, Any]]:
        """Who computed, communicated and waited when, where that was recorded."""
        spans = itertools.chain.from_iterable(seen["timeline"] for seen in self._workers)
        return [dict(zip(TIMELINE, span, strict=True)) for span in spans]

    def result(self) -> dict[str, Any]:
        """The measured part of `result.json`."""
        curve = self.curve()
        last = curve[-1] if curve else {}
        status, reason = self._verdict(last)
        test = next((seen["test"] for seen in self._workers if seen["test"]), None) or {}
        steps = sum(seen["steps"] for seen in self._workers + self._lost)
        size = self._config["batch_size"]
        seconds = max(self._seconds_of(seen) for seen in self._workers)
        updates = self._updates()
        phases = self.phases()
        taken = [row["steps"] for row in phases]
        first = self._workers[0]
        return {
            "status": status,
            "reason": reason,
            "workers": first["counted"],
            "servers": len(self._servers),
            "global_batch_size": first["images_per_update"],
            "lr": first["lr"],
            "momentum": first["momentum"],
            "samples": self._servers[0]["samples"] if self._servers else steps * size,
            "dropped_samples": len(self._dropped) * size,
            "distinct_samples": self._distinct_samples(),
            "updates": updates,
            "seconds": seconds,
            "images_per_second": self._rate("step_ends"),
            "updates_per_second": updates / seconds if seconds else None,
            "real_seconds": max(float(seen["real_step_ends"][-1]) for seen in self._trained()),
            "real_images_per_second": self._rate("real_step_ends"),
            "late_steps": sum(seen["late_steps"] for seen in self._workers),
            "top1": last.get("top1"),
            "top5": last.get("top5"),
            "train_loss": last.get("train_loss"),
            "validation_loss": last.get("validation_loss"),
            "test_top1": test.get("top1"),
            "test_top5": test.get("top5"),
            "test_loss": _finite(test.get("loss")),
            **self._staleness_result(),
            "data_wait_share": _share(phases, "seconds_data"),
            "bytes_sent": sum(row["bytes_sent"] for row in phases),
            "bytes_received": sum(row["bytes_received"] for row in phases),
            "num_parameters": first["num_parameters"],
            "evaluated": first["evaluated"],
            "certificate": self._certificate.words,
            "steps_spread": max(taken) - min(taken),
            "held_answers": sum(server["held"] for server in self._servers),
            "lost_workers": self._lost,
            "peak_rss_bytes": max(seen["peak_rss_bytes"] for seen in self._workers + self._servers),
        }

    def training_started(self) -> float:
        """When the first worker asked for its first batch: seconds since 1970."""
        return min(seen["training_started"] for seen in self._workers)

    def _trained(self) -> list[Seen]:
        """Processes that took a step: one stands for all workers on the virtual clock."""
        return [seen for seen in self._workers if len(seen["real_step_ends"])]

    def _loss(self, lost: LostWorker, server: Seen) -> dict[str, Any]:
        """`steps`: of its pushes, those that server 0 took."""
        steps = sum(worker == lost.worker for worker, _ in server["pushes"])
        seen = dict(server["lost"])[lost.worker]
        return {
            "worker": lost.worker,
            "steps": steps,
            "reason": f"{lost.reason} (server 0: {seen})",
        }

    def _distinct_samples(self) -> int | None:
        """In the batches whose gradients were applied."""
        if self._lost:
            return None
        return num_distinct([s["images_seen"] for s in self._workers], self._dropped, self._config)

    def _rate(self, name: str) -> float | None:
        """Of images whose gradients were applied; `name`: of the ends of steps."""
        if self._lost:
            return None
        ends = [self._applied(seen, np.asarray(seen[name])) for seen in self._workers]
        warmup = self._config["measurement"]["warmup_fraction"]
        return images_per_second(ends, self._config["batch_size"], warmup)

    def _applied(self, seen: Seen, step_ends: np.ndarray) -> np.ndarray:
        """Without those of gradients that were dropped, as far as the steps are this worker's: real
        ones of a virtual clock are all workers'.
        """
        if len(step_ends) != seen["steps"]:
            return step_ends
        return np.delete(step_ends, [turn for w, turn in self._dropped if w == seen["worker"]])

    @property
    def _dropped(self) -> list[tuple[int, int]]:
        """Worker, and number among its own, of each batch whose gradient was not applied."""
        return self._servers[0]["dropped_steps"] if self._servers else []

    def _updates(self) -> int:
        if self._servers:
            return self._servers[0]["updates"]
        return self._workers[0]["updates"]

    def _losses(self) -> dict[int, float | None]:
        """Mean training loss up to each threshold, over the steps of all workers."""
        thresholds = self._workers[0]["thresholds"]
        means = {}
        for turn, threshold in enumerate(thresholds):
            parts = [seen["losses"][turn] for seen in self._workers]
            count = sum(count for _, count in parts)
            means[threshold] = _finite(sum(loss for loss, _ in parts) / count) if count else None
        return means

    def _phases_of(self, seen: Seen) -> dict[str, Any]:
        seconds = self._seconds_of(seen)
        busy = seconds - seen["seconds_data"] - seen["seconds_communicate"]
        return {
            "worker": seen["worker"],
            "steps": seen["steps"],
            "samples": seen["steps"] * self._config["batch_size"],
            "seconds_data": round(seen["seconds_data"], 4),
            "seconds_compute": round(max(0.0, busy), 4),
            "seconds_communicate": round(seen["seconds_communicate"], 4),
            "bytes_sent": seen["bytes_sent"],
            "bytes_received": seen["bytes_received"],
        }

    def _seconds_of(self, seen: Seen) -> float:
        return float(seen["step_ends"][-1]) if len(seen["step_ends"]) else 0.0

    def _staleness_result(self) -> dict[str, float | int | None]:
        if not self._servers:
            return {"staleness_mean": 0.0, "staleness_max": 0, "stale_share": 0.0}
        pushes = itertools.chain.from_iterable(server["pushes"] for server in self._servers)
        seen = np.array([staleness for _, staleness in pushes])
        if not len(seen):
            return {"staleness_mean": None, "staleness_max": None, "stale_share": None}
        return {
            "staleness_mean": float(seen.mean()),
            "staleness_max": int(seen.max()),
            "stale_share": float((seen > 0).mean()),
        }

    @cached_property
    def _certificate(self) -> Certificate:
        count = len(self._workers) + len(self._lost)
        return certificate(self._workers[0]["claim"], count, self._workers, self._servers)

    def _verdict(self, last: dict[str, Any]) -> tuple[str, str]:
        if any(seen["diverged"] for seen in self._workers + self._servers):
            return "diverged", "weights are no longer finite"
        if not last or last["validation_loss"] is None:
            return "diverged", "the validation loss is not finite"
        if self._scores[-1]["at_chance"]:
            return "diverged", f"accuracy at chance: top-1 is {last['top1']:.3f}"
        if not (self._certificate.earned or self._lost):
            return "failed", self._certificate.words
        lost = [
            f"worker {each['worker']} was lost after {each['steps']} steps: {each['reason']}"
            for each in self._lost
        ]
        return "finished", "; ".join(lost)


def _share(phases: list[dict[str, Any]], name: str) -> float | None:
    parts = ("seconds_data", "seconds_compute", "seconds_communicate")
    total = sum(row[part] for row in phases for part in parts)
    return sum(row[name] for row in phases) / total if total else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
