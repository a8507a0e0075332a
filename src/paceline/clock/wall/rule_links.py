"""What the messages of a rule do on real processes: for a worker whose gradients servers apply, and
for a worker with weights of its own.

Both have a method for each message that their rules may send, named by its `verb`. It blocks until
it returns the answer, which is valid until the rule of this step ends.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.clock.flat_optimizer import flat_optimizer
from paceline.clock.flat_weights import FlatWeights
from paceline.clock.reports import TrainingClock
from paceline.clock.run_spec import RunSpec, StepNumbers
from paceline.clock.snapshot import MovingAverage, Snapshot, flatten, scored_weights, state_of
from paceline.clock.vector_spec import VectorSpec
from paceline.clock.wall.pair_link import AbstractPairLink
from paceline.clock.wall.wall_links import MeanLink, PushLink
from paceline.exchange.process_group import draw_number, members, numbers_drawn, worker_index
from paceline.scheme.audit import Averaged
from paceline.scheme.counts import Counts

_runs = itertools.count()  # of this process group


class ServedLinks:
    """Links of a worker whose gradients are applied by servers, which grant it steps. `flat`:
    weights on which the network computes, in the buffers of `push`, so that pushes copy nothing.
    """

    step_numbers: Sequence[int] = ()  # the answers of servers decide whether a step follows
    averages: Sequence[Averaged] = ()

    def __init__(self, flat: FlatWeights, run: RunSpec, counts: Counts, push: PushLink) -> None:
        self.flat, self._run, self._counts, self._push = flat, run, counts, push
        self.push, self.adopt = push.push, flat.adopt

    def begin(self) -> None:
        """Get the first weights, which are the same for all workers, and a step."""
        self._push.begin(self._push.wire.weights)
        self.flat.adopt(self._push.wire.weights)

    @property
    def has_step(self) -> bool:
        """True if this worker may take another step."""
        return self._push.granted

    def finish_step(self) -> None:
        """Count a step; the servers have done so."""

    def keep_snapshots(self) -> None:
        """Keep the snapshots that are due; the servers do so."""

    @property
    def samples(self) -> int:
        """Samples over all workers, when this worker last read server 0's weights."""
        updates = self._push.wire.versions[0]
        return self._run.samples_at(self._counts.batches(updates, self._run.num_steps))

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._push.bytes_exchanged

    def state(self) -> dict[str, Any]:
        return {"weights": self.flat.weights, "versions": self._push.wire.versions}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue with the weights that this worker had read, which are not the latest."""
        self.flat.adopt(state["weights"])
        self._push.wire.versions = state["versions"]

    def finish(self) -> None:
        """Let nobody change the weights any more, as nobody else does."""

    def leave(self) -> list[Snapshot]:
        """Leave the others; return the snapshots that this worker evaluates."""
        return self._push.finish()


class OwnWeightsLinks:
    """Links of a worker that applies gradients to weights of its own by its own optimizer.

    Without servers a snapshot is the mean of all workers' weights. Each worker copies its weights,
    and their moving average if there is one, at its first step for which all workers together have
    reached the snapshot's number of samples. With servers a snapshot has the servers' weights.

    `flat`: weights on which the network computes. `push`: None if there are no servers. `pair`:
    link that owns the weights if other workers may ask for pairwise means; the network computes on
    a copy then. `options()`: present numbers among the optimizer's options. `step_numbers`:
    run-wide numbers of this worker's steps and of the next one. `averages`: pairwise means in
    order.
    """

    def __init__(
        self,
        flat: FlatWeights,
        run: RunSpec,
        vectors: VectorSpec,
        counts: Counts,
        *,
        push: PushLink | None,
        pair: AbstractPairLink | None,
        options: Callable[[], Sequence[float]],
        statistics: Sequence[Tensor],
        clock: TrainingClock,
    ) -> None:
        self.flat, self._run, self._vectors, self._options = flat, run, vectors, options
        self._counts, self._push, self._pair = counts, push, pair
        self._statistics, self._clock = statistics, clock
        self._means = MeanLink(flat.weights.numel(), flat.weights.dtype, flat.weights.device)
        self.mean, self.neighbour_mean = self._means.mean, self._means.neighbour_mean
        if push is not None:
            self.push = push.push
        if pair is not None:
            self.pair = pair.average
        self._counting = push or pair or self._means
        self.weights = pair.weights if pair else flat.weights
        self._optimizer = flat_optimizer(self.weights, vectors.segments)
        self._drawn, self._drawn_before = f"steps of run {next(_runs)}", 0
        self._numbers = StepNumbers(counts, self._draw)
        self.step_numbers = [self._numbers.next()]
        self.averages = pair.averages if pair else []
        self._kept: list[Tensor] = []
        self._snapshots: list[Snapshot] = []

    def begin(self) -> None:
        """Adopt the first weights, which are the same for all workers, and connect to them."""
        first = self.flat.weights.cpu()
        if self._push is not None:
            self._push.begin(first)
            first = self._push.wire.weights
        else:
            dist.broadcast(first, group=members(), group_src=0)
        self.adopt(first)
        if self._pair is not None:
            self._pair.begin()
        self._average = (
            None if self._push else MovingAverage.begun([self.flat.weights], self._run.sample_decay)
        )

    def apply(self, gradient: Tensor) -> Tensor:
        gradient = gradient.to(self.weights.device)  # a GPU may still compute it
        with self._pair.step() if self._pair else nullcontext():
            factor = self._run.rate_factor(self._run.samples_at(self.step_numbers[-1]))
            self._optimizer.step(gradient, factor, self._options())
            self.flat.adopt(self.weights)
        return self.flat.weights

    def keep(self, vectors: Sequence[Tensor]) -> None:
        self._kept = [vector.clone() for vector in vectors]

    def kept(self, number: int) -> Sequence[Tensor]:
        return self._kept

    def adopt(self, weights: Tensor) -> None:
        self.weights.copy_(weights)
        self.flat.adopt(self.weights)

    @property
    def has_step(self) -> bool:
        """True if a step of the run is left for this worker."""
        return not self._run.ends_before(self.step_numbers[-1])

    def finish_step(self) -> None:
        """Count a step; draw the number of the next one."""
        self.step_numbers.append(self._numbers.next())

    def _draw(self) -> int:
        """Draw a number; a resumed run continues after those that it had drawn."""
        return self._drawn_before + draw_number(self._drawn)

    def keep_snapshots(self) -> None:
        """Copy the weights if a snapshot is due, which the training clock counts."""
        if self._average is not None:
            before, after = map(self._run.samples_at, self.step_numbers[-2:])
            self._average.update([self.flat.weights], after - before)
        if self._push is not None:
            return
        for samples in self._run.passed(len(self._snapshots), self.step_numbers[-1]):
            updates, seconds = self._run.updates_at(samples), self._clock.seconds()
            weights = scored_weights(self.flat.weights, self._average).cpu()
            statistics = torch.empty(self._vectors.num_statistics, dtype=weights.dtype)
            flatten(self._statistics, statistics)
            self._snapshots.append(Snapshot(samples, updates, seconds, weights, statistics))

    @property
    def samples(self) -> int:
        """Samples over all workers before this worker's next step."""
        return self._run.samples_at(self._run.within(self.step_numbers[-1]))

    @property
    def bytes_exchanged(self) -> tuple[int, int]:
        return self._counting.bytes_exchanged

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, when no other worker changes these weights."""
        return {
            "weights": self.weights,
            "computed": self.flat.weights,
            "optimizer": self._optimizer.state(),
            "numbers": self._numbers.state(),
            "step_numbers": self.step_numbers,
            "kept": self._kept,
            "pair": self._pair.state() if self._pair else None,
            "average": self._average.weights if self._average else None,
            "snapshots": state_of(self._snapshots),
            "versions": self._push.wire.versions if self._push else [],
            "drawn": self._drawn_before + numbers_drawn(self._drawn),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.weights.copy_(state["weights"])
        self.flat.adopt(state["computed"])
        self._optimizer.load_state(state["optimizer"])
        self._numbers.load_state(state["numbers"])
        self.step_numbers[:] = state["step_numbers"]
        self._kept = [vector.to(self.weights.device) for vector in state["kept"]]
        if self._pair is not None:
            self._pair.load_state(state["pair"])
        if self._average is not None:
            self._average.weights = state["average"]
        self._snapshots = [Snapshot(**each) for each in state["snapshots"]]
        if self._push is not None:
            self._push.wire.versions = state["versions"]
        # each worker has drawn its first number anew, for nothing, if it draws at all
        drawn_anew = 0 if self._counts.scheme.equal_steps else self._run.num_workers
        self._drawn_before = state["drawn"] - drawn_anew

    def finish(self) -> None:
        """Wait until no other worker changes these weights any more."""
        if self._pair is not None:
            self._pair.finish()
            self.flat.adopt(self.weights)

    def leave(self) -> list[Snapshot]:
        """Return the snapshots that this worker evaluates: those n with n % workers == rank. Each
        is the mean of all workers' copies, at the latest of their times; all must call this.
        """
        if self._push is not None:
            return self._push.finish()
        means = list[Snapshot]()
        for kept in self._snapshots:
            for vector in (kept.weights, kept.statistics):
                dist.all_reduce(vector, group=members())
                vector.div_(self._run.num_workers)
            seconds = torch.tensor(kept.seconds, dtype=torch.float64)
            dist.all_reduce(seconds, dist.ReduceOp.MAX, members())
            means.append(replace(kept, seconds=float(seconds)))
        return means[worker_index() :: self._run.num_workers]
