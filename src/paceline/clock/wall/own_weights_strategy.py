"""Lightning strategy of a worker that applies gradients to its own weights."""

import itertools
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning import Trainer

from paceline.clock.flat_weights import FlatWeights
from paceline.clock.links import AbstractLinks, complete
from paceline.clock.run_spec import StepNumbers
from paceline.clock.snapshot import Snapshot, flatten, scored_weights, state_of
from paceline.clock.wall.pair_link import pair_link
from paceline.clock.wall.rule_strategy import AbstractRuleStrategy
from paceline.clock.wall.wall_links import OwnWeightsLinks
from paceline.exchange.process_group import draw_number, members, numbers_drawn, worker_index

_runs = itertools.count()  # of this process group


class OwnWeightsStrategy(AbstractRuleStrategy):
    """Strategy of a worker with its own weights.

    Without servers a snapshot is the mean of all workers' weights. Each worker copies its weights,
    and their moving average if there is one, at its first step for which all workers together have
    reached the snapshot's number of samples. With servers a snapshot has the servers' weights.
    """

    applied_by = "a worker with weights of its own"

    def _connect(self, trainer: Trainer) -> tuple[FlatWeights, AbstractLinks]:
        pair = pair_link(self.scheme, self.run, self.vectors)
        if self.scheme.servers:
            self.push = self._push_link(self.vectors)
        size, device = self.vectors.num_weights, self.root_device
        gradient = torch.zeros(size, dtype=self.held_weights[0].dtype, device=device)
        weights = pair.computed if pair else torch.zeros_like(gradient)
        flat = FlatWeights(self.held_weights, weights, gradient)
        first = flat.weights.cpu()
        if self.push is not None:
            self.push.begin(first)
            first = self.push.wire.weights
        else:
            dist.broadcast(first, group=members(), group_src=0)
        self._drawn, self._drawn_before = f"steps of run {next(_runs)}", 0
        self._own = OwnWeightsLinks(
            flat,
            self.run,
            self.vectors,
            StepNumbers(self.counts, self._draw),
            push=self.push,
            pair=pair,
            options=self._options.read,
        )
        self._own.begin(first)
        self._counting = self.push or pair or self._own.means
        self._average = None if self.push else self.run.average_of([flat.weights])
        self.step_numbers, self.averages = self._own.step_numbers, pair.averages if pair else []
        trainer.should_stop = not self._own.has_step
        return flat, self._own

    def _draw(self) -> int:
        """Draw a number; a resumed run continues after those that it had drawn."""
        return self._drawn_before + draw_number(self._drawn)

    def state(self) -> dict[str, Any]:
        average = self._average.weights if self._average else None
        return {
            **super().state(),
            "own": self._own.state(),
            "average": average,
            "kept": state_of(self._snapshots),
            "versions": self.push.wire.versions if self.push else [],
            "drawn": self._drawn_before + numbers_drawn(self._drawn),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._own.load_state(state["own"])
        if self._average is not None:
            self._average.weights = state["average"]
        self._snapshots = [Snapshot(**each) for each in state["kept"]]
        if self.push is not None:
            self.push.wire.versions = state["versions"]
        # each worker has drawn its first number anew, for nothing, if it draws at all
        drawn_anew = 0 if self.scheme.equal_steps else self.run.num_workers
        self._drawn_before = state["drawn"] - drawn_anew

    def on_train_end(self) -> None:
        super().on_train_end()
        self._beside.wait()
        self._own.finish()

    @property
    def samples(self) -> int:
        return self.run.samples_at(self.run.within(self.step_numbers[-1]))

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._counting.bytes_exchanged

    def _leave(self) -> list[Snapshot]:
        """Return the snapshots that this worker evaluates: those n with n % workers == rank."""
        if self.push is not None:
            return self.push.finish()
        means = [self._mean_of(kept) for kept in self._snapshots]
        return means[worker_index() :: self.run.num_workers]

    def _finish_step(self) -> None:
        self._own.finish_step()
        if not self._own.has_step:
            self._trainer.should_stop = True
            complete(self._driver.end(self._flat.weights, self.num_steps))
        if self._average is not None:
            before, after = map(self.run.samples_at, self.step_numbers[-2:])
            self._average.update([self._flat.weights], after - before)
        if self.push is None:
            for samples in self.run.passed(len(self._snapshots), self.step_numbers[-1]):
                self._keep_snapshot(samples)

    def _keep_snapshot(self, samples: int) -> None:
        """Copy the weights: the only work for evaluation that the training clock counts."""
        updates, seconds = self.run.updates_at(samples), self._clock.seconds()
        weights = scored_weights(self._flat.weights, self._average).cpu()
        statistics = torch.empty(self.vectors.num_statistics, dtype=self.held_weights[0].dtype)
        flatten(self._statistics, statistics)
        self._snapshots.append(Snapshot(samples, updates, seconds, weights, statistics))

    def _mean_of(self, kept: Snapshot) -> Snapshot:
        """Return the mean of all workers' copies, with the latest of their times; all must call
        this.
        """
        for vector in (kept.weights, kept.statistics):
            dist.all_reduce(vector, group=members())
            vector.div_(self.run.num_workers)
        seconds = torch.tensor(kept.seconds, dtype=torch.float64)
        dist.all_reduce(seconds, dist.ReduceOp.MAX, members())
        return Snapshot(kept.samples, kept.updates, float(seconds), kept.weights, kept.statistics)
