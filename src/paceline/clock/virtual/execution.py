"""Second pass of the virtual clock: carries out the operations of a simulated run on vectors.

A gradient is computed when the rule of its step begins, or before, together with those of all other
workers that compute at that moment.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from paceline.clock.reports import StrategyReport
from paceline.clock.served_pushes import Update
from paceline.clock.served_weights import ServedWeights
from paceline.clock.snapshot import (
    Snapshot,
    join_shards,
    scored_weights,
    state_of,
    weights_digest,
)
from paceline.clock.vector_spec import VectorSpec, server_specs
from paceline.clock.virtual.lender import Lender
from paceline.clock.virtual.shared_states import RunningMean, SharedStates
from paceline.clock.virtual.simulation import Simulation
from paceline.clock.virtual.unknown import GRADIENT, UNKNOWN
from paceline.clock.virtual.virtual_worker import VirtualWorker
from paceline.errors import SettingError
from paceline.scheme import rule as messages
from paceline.scheme.counts import Counts
from paceline.scheme.rule import Message, Step, WorkerView, next_message

_HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


_OF_WORKERS = (
    *("weights", "statistics", "counters", "numbers", "gradient", "message", "incoming"),
    *("kept", "ahead", "answers", "ends"),
)
_OF_RUN = ("_sum", "_sent", "_pairs", "_gathered", "_pushed")


class Ahead(NamedTuple):
    """Result of a step that has been computed before its rule begins. `statistics`: those of the
    module after it. `loss`: a scalar. The vectors are filled by whoever computes the step.
    """

    gradient: Tensor
    statistics: Tensor
    loss: Tensor


class WorkerVectors:
    """Vectors of one worker, whose course `virtual` is.

    `weights`: weights on which it computes; None while it waits for an answer that replaces them.
    `statistics`: floating-point buffers of the module, as one vector, which is never changed;
    `counters`: its other buffers. `ahead`: result of the step under way, if it has been computed.
    `numbers`: options of its optimizer for its latest gradient; None where they do not change.
    `gradient`: of the step whose rule is under way, until it has been sent. `message`: vector that
    it pushes. `incoming`: weights that servers have sent. `kept`: what its rule keeps for later.
    """

    def __init__(self, virtual: VirtualWorker, statistics: Tensor, counters: list[Tensor]) -> None:
        self.virtual, self.statistics, self.counters = virtual, statistics, counters
        self.index = virtual.index
        self.weights: Tensor | None = None
        self.ahead: Ahead | None = None
        self.numbers: list[float] | None = None
        self.gradient: Tensor | None = None
        self.message: Tensor | None = None
        self.incoming: Tensor | None = None
        self.kept: Sequence[Tensor] = ()
        self.view: WorkerView | None = None
        self.rule: Step | None = None
        self.ends = False  # its rule is that of the end of its run
        self.answers: list[Any] = []  # which the rule has got, and gets next

    @property
    def num_steps(self) -> int:
        return self.virtual.num_steps

    def state(self) -> dict[str, Any]:
        ahead = self.ahead and [*self.ahead]
        return {**{name: getattr(self, name) for name in _OF_WORKERS}, "ahead": ahead}

    def forget(self, *names: str) -> None:
        """Let go of what the rule may not use again: its `gradient` or `weights`."""
        for name in names:
            setattr(self, name, None)
            if self.view is not None:
                vars(self.view)[name] = UNKNOWN


class Execution:
    """Vectors of a run, which follow the operations of `simulation`.

    `due_worker()` returns the worker whose gradient is needed next. Compute it on the worker's
    `weights`, give it to the worker, and call `finish_step`. Or compute the steps of all workers of
    `begin_wave()` together, and call `finish_ahead` for each that is due.

    `weights`, `statistics`, `counters`: those of the module, with which all workers begin.
    """

    def __init__(
        self,
        simulation: Simulation,
        vectors: VectorSpec,
        weights: Tensor,
        statistics: Tensor,
        counters: Sequence[Tensor] = (),
    ) -> None:
        self.simulation = simulation
        scheme, run = simulation.scheme, simulation.run
        self._scheme, self._run, self._counts = scheme, run, Counts(scheme, run.num_workers)
        self.lender, self._statistics_lender = Lender(weights), Lender(statistics)
        self.workers = [
            WorkerVectors(worker, statistics, [each.clone() for each in counters])
            for worker in simulation.workers
        ]
        self._own: SharedStates | None = None
        if scheme.own_weights:
            decay = None if scheme.servers else run.sample_decay
            self._own = SharedStates(weights, vectors, run.num_workers, self.lender, decay)
        self._snapshots: list[Snapshot] = []  # of own weights
        self._reaching: dict[int, list[RunningMean]] = {}  # for snapshots, by samples
        self._half = _HALVES.get(scheme.compression) if run.num_workers > 1 else None
        self._sum: Tensor | None = None  # of what has been brought to a mean
        self._sent: dict[tuple[int, int], list[Any]] = {}  # by sender and step: value, and readers
        self._pairs: dict[int, Tensor] = {}  # weights, or their change, under way
        self._gathered: dict[int, Tensor] = {}  # sums of groups, by first worker
        self._pushed: dict[int, Tensor] = {}  # statistics of each worker's last push
        self._version: Tensor | None = None  # copy of the present weights of a single server
        self._served: list[ServedWeights] = []
        if simulation.servers is not None:
            self._begin_servers(simulation, vectors, weights.clone())
        first = self.lender.copy(weights) if self._own is None else self._own.of[0].weights
        for worker in self.workers:
            worker.weights = first
        self._stream, self._num_read = simulation.operations(), 0
        self._due: WorkerVectors | None = None

    def _begin_servers(self, simulation: Simulation, vectors: VectorSpec, weights: Tensor) -> None:
        assert simulation.servers is not None
        scheme = self._scheme
        self._weights, self._bounds = weights, vectors.bounds(scheme.servers)
        specs = server_specs(scheme, self._run, vectors)
        for spec, (first, last) in zip(specs, self._bounds, strict=True):
            served = ServedWeights(
                scheme,
                spec,
                weights[first:last],
                gradient=partial(self._part_of_push, part=slice(first, last)),
                # statistics are sent to server 0 only
                statistics=lambda worker, server=spec.server: (
                    torch.empty(0) if server else self._pushed[worker]
                ),
                seconds=lambda: simulation.kernel.now,
                numbers=lambda worker: self.workers[worker].numbers or (),
            )
            served.report = simulation.servers.pushes[spec.server].report
            self._served.append(served)
            for worker in self._counts.pushing:
                served.answer(worker)

    def _part_of_push(self, worker: int, part: slice) -> Tensor:
        message = self.workers[worker].message
        assert message is not None
        return message[part]

    # called by a Trainer

    def due_worker(self) -> WorkerVectors | None:
        """Go on to the worker whose gradient is needed next; None if no worker takes a step."""
        while self._due is None and self._go_on():
            pass
        return self._due

    def begin_wave(self, due: WorkerVectors, *, alone: bool) -> list[WorkerVectors]:
        """Return all workers that are computing now and have no result yet, or only the one that is
        due. Their weights, statistics and batches stay as they are until their gradient is due.
        Each has vectors for its result, `ahead`, which the caller fills before `finish_ahead`.
        """
        computing = [due] if alone else self.workers
        wave = [each for each in computing if each.virtual.computing and each.ahead is None]
        losses = self.lender.new(len(wave)).unbind()
        for worker, loss in zip(wave, losses, strict=True):
            worker.ahead = Ahead(self.lender.lend(), self._statistics_lender.lend(), loss)
        return wave

    def finish_ahead(self) -> None:
        """Go on with the result that has been computed for the worker that is due."""
        worker = self._due
        assert worker is not None
        assert worker.ahead is not None
        worker.gradient, worker.statistics = worker.ahead.gradient, worker.ahead.statistics
        worker.ahead = None
        self.finish_step()

    def finish_step(self) -> None:
        """Go on with the `gradient` that the worker that is due has been given, which belongs to
        this object from now on; stop before virtual time advances.
        """
        worker, self._due = self._due, None
        assert worker is not None
        self._begin_rule(worker)
        self._go_on()

    def end(self) -> None:
        """Deliver all messages under way; no worker takes another step."""
        self.simulation.ending, self._due = True, None
        while self._go_on():
            pass
        for worker in self.workers:
            self._begin(worker.index)  # on what followed its last step, too

    def _go_on(self) -> bool:
        """Carry out operations until virtual time advances, or a gradient is needed; return False
        if there are none.
        """
        for operation in self._stream:
            self._num_read += 1
            if operation is None:
                return True
            name, *arguments = operation
            getattr(self, f"_{name}")(*arguments)
            if self._due is not None:
                return True
        return False

    # observations

    @property
    def snapshots(self) -> list[Snapshot]:
        if not self._served:
            return self._snapshots
        shards = [each.snapshots for each in self._served]
        return [join_shards(list(parts)) for parts in zip(*shards, strict=True)]

    @property
    def num_snapshots(self) -> int:
        return len(self._served[-1].snapshots if self._served else self._snapshots)

    def shared(self) -> Snapshot:
        """Return a snapshot of the present weights: the servers', or the mean over workers."""
        simulation, statistics = self.simulation, [each.statistics for each in self.workers]
        if self._served:
            weights, statistics = self._weights.clone(), [*self._pushed.values()] or statistics[:1]
        else:
            weights = self._states.mean()
        counts = (simulation.samples, simulation.updates, simulation.kernel.now)
        return Snapshot(*counts, weights[None], torch.stack(statistics).mean(0))

    def report(self) -> StrategyReport:
        report = self.simulation.report()
        for worker, found in zip(self.workers, report.workers, strict=True):
            held = [] if worker.weights is None else [worker.weights]
            found.weights_digest = weights_digest(held)
        return report

    # checkpoints

    def state(self) -> dict[str, Any]:
        """Return the state between two steps, for `resume`; it holds the vectors themselves."""
        return {
            "operations": self._num_read,
            "now": self.simulation.kernel.now,
            "ended": self.simulation.ending or self.simulation.diverged,
            "workers": [worker.state() for worker in self.workers],
            "own": self._own.state() if self._own else [],
            "served": [each.vectors() for each in self._served],
            "snapshots": state_of(self._snapshots),
            "reaching": {n: [vars(each) for each in means] for n, means in self._reaching.items()},
            **{name: getattr(self, name) for name in _OF_RUN},
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from the state of another run with the same settings; this one has just started.

        What happens when does not depend on values, so as many operations are left out as were
        carried out there, and every vector gets its content. Raises ValueError for the state of
        another run.
        """
        for operation in itertools.islice(self._stream, state["operations"]):
            self._num_read += 1
            self._due = None
            if operation and operation[0] == "computed":
                self._computed(*operation[1:])
        read, now = self._num_read, self.simulation.kernel.now
        if state["ended"] or (read, now) != (state["operations"], state["now"]):
            raise ValueError(f"of a run that has ended, or of another one, at {state['now']} s")
        placed = _Placed(self.lender)
        if self._own is not None:
            self._own.load_state(
                {**each, "weights": placed(each["weights"]), "average": placed(each["average"])}
                for each in state["own"]
            )
        for served, each in zip(self._served, state["served"], strict=True):
            served.load_vectors(each)
        for samples, means in placed(state["reaching"]).items():
            self._reaching[samples] = [RunningMean(**each) for each in means]
        self._snapshots[:] = [Snapshot(**each) for each in state["snapshots"]]
        for name in _OF_RUN:
            setattr(self, name, placed(state[name]))
        for worker, each in zip(self.workers, placed(state["workers"]), strict=True):
            vars(worker).update(each, ahead=each["ahead"] and Ahead(*each["ahead"]))
            answers = worker.answers
            if answers:  # lead its rule to the message at which it was
                self._begin_rule(worker, ends=worker.ends)
                worker.answers = answers
                assert worker.rule is not None
                for answer in answers[:-1]:
                    next_message(worker.rule, answer)

    # rules

    def _begin_rule(self, worker: WorkerVectors, *, ends: bool = False) -> None:
        """Begin the rule of a worker's step, or that of the end of its run."""
        virtual, run = worker.virtual, self._run
        weights = UNKNOWN if worker.weights is None else worker.weights
        worker.answers, worker.ends = [None], ends
        if ends:
            worker.rule = self._scheme.end(weights, virtual.num_steps)
        else:
            worker.view = WorkerView(
                GRADIENT if worker.gradient is None else worker.gradient,
                weights,
                worker.index,
                run.num_workers,
                virtual.num_steps,
                run.progress(virtual.next_number),
            )
            worker.rule = self._scheme.step(worker.view)

    def _next(self, worker: WorkerVectors) -> Message | None:
        """Return the next message of the worker's rule that is an operation; None at its end."""
        assert worker.rule is not None
        while True:
            message = next_message(worker.rule, worker.answers[-1])
            worker.answers.append(None)
            if isinstance(message, messages.Keep):
                worker.kept = [self.lender.copy(vector) for vector in message.vectors]
            elif isinstance(message, messages.Kept):
                worker.answers[-1] = [*worker.kept]
            elif not isinstance(message, messages.PairMean):
                return message

    def _message(self, worker: WorkerVectors, kind: type[Any]) -> Any:
        message = self._next(worker)
        values = vars(message).values() if message else ()
        if type(message) is not kind or any(value is UNKNOWN for value in values):
            name = type(self._scheme).__name__
            raise SettingError("scheme", f"the messages of {name} depend on values of vectors")
        return message

    # operations: the life of a worker

    def _begin(self, index: int) -> None:
        """Let a worker begin a step, on the weights that it has."""
        if self._own is not None:
            self.workers[index].weights = self._own.of[index].weights

    def _computed(self, index: int) -> None:
        """Let the rule of a worker's step begin, once its gradient is there."""
        self._due = self.workers[index]

    def _end_run(self, index: int) -> None:
        """Begin the rule of a worker that has taken its last step."""
        self._begin(index)
        self._begin_rule(self.workers[index], ends=True)

    def _end_rule(self, index: int) -> None:
        """End the rule of a worker's step, or of the end of its run."""
        worker = self.workers[index]
        self._message(worker, type(None))
        worker.rule = worker.view = worker.gradient = None
        worker.answers = []

    # operations: weights of the workers

    @property
    def _states(self) -> SharedStates:
        assert self._own is not None
        return self._own

    def _apply(self, indices: Sequence[int]) -> None:
        """Let workers apply gradients at one instant. Those that share weights and a gradient do so
        once, in place.
        """
        together: dict[Any, tuple[Tensor, list[WorkerVectors]]] = {}
        for worker in (self.workers[index] for index in indices):
            gradient = self._message(worker, messages.Apply).gradient
            if gradient is worker.gradient:
                worker.forget("gradient")
            same = (id(gradient), tuple(worker.numbers or ()))
            together.setdefault(same, (gradient, []))[1].append(worker)
        for gradient, workers in together.values():
            first = min(workers, key=lambda worker: worker.index)
            factor = self._run.rate_factor(self._run.samples_at(first.virtual.next_number))
            for state in self._states.of_exactly(worker.index for worker in workers):
                state.optimizer.step(gradient, factor, first.numbers)
        for index in indices:
            self.workers[index].answers[-1] = self._states.of[index].weights

    def _adopt(self, index: int) -> None:
        """Replace a worker's weights."""
        worker = self.workers[index]
        answer, weights = worker.answers[-1], self._message(worker, messages.Adopt).weights
        if self._own is not None:
            self._own.own(index).copy_(weights)
        else:
            worker.weights = weights if weights is answer else self.lender.copy(weights)

    def _average(self, indices: Sequence[int], images: int) -> None:
        """Take weights, after so many images of all workers, into the workers' averages."""
        for state in self._states.of_exactly(indices):
            assert state.average is not None
            state.average.update([state.weights], images)

    def _reach(self, indices: Sequence[int], samples: int, complete: bool) -> None:
        """Add the weights of workers to a snapshot, whose samples they have reached; it is
        `complete` when all workers have.
        """
        weights, statistics = self._reaching.setdefault(samples, [RunningMean(), RunningMean()])
        for state, number in Counter(self._states.of[index] for index in indices).items():
            weights.add(scored_weights(state.weights, state.average), number)
        for index in indices:
            statistics.add(self.workers[index].statistics)
        if complete:
            del self._reaching[samples]
            updates, now = self._run.updates_at(samples), self.simulation.kernel.now
            self._snapshots.append(Snapshot(samples, updates, now, weights.value, statistics.value))
            self.simulation.diverged |= not self._snapshots[-1].is_finite()

    # operations: messages among workers

    def _bring(self, index: int) -> None:
        """Add a worker's value to the sum of a mean over all workers. Compressed to 16 bits, it is
        what torch's hooks make of it, except that the sum is rounded only once.
        """
        worker = self.workers[index]
        value = self._message(worker, messages.Mean).value
        brought = value if value is worker.gradient else self.lender.copy(value)
        if brought is value:
            worker.forget("gradient")
        self._compress(brought)
        self._sum = brought if self._sum is None else self._sum.add_(brought)

    def _meet(self) -> None:
        """Let all workers, which have brought their values, have the mean."""
        mean, self._sum = self._sum, None
        assert mean is not None
        if len(self.workers) > 1:
            mean.div_(len(self.workers))
        self._compress(mean)
        for worker in self.workers:
            worker.answers[-1] = mean

    def _compress(self, value: Tensor) -> None:
        if self._half:
            value.copy_(value.to(self._half))

    def _send(self, index: int, step: int) -> None:
        """Let a worker's value leave for its neighbours."""
        message = self._message(self.workers[index], messages.NeighbourMean)
        readers = 1 + len(message.receivers)
        self._sent[index, step] = [self.lender.copy(message.value), readers]

    def _meet_neighbours(self, index: int, step: int, senders: Sequence[int]) -> None:
        """Let a worker have the mean of its own value and those of its `senders`."""
        total = self.lender.copy(self._value_of(index, step))
        for sender in senders:
            total.add_(self._value_of(sender, step))
        self.workers[index].answers[-1] = total.div_(1 + len(senders))

    def _value_of(self, sender: int, step: int) -> Tensor:
        entry = self._sent[sender, step]
        entry[1] -= 1
        if not entry[1]:
            del self._sent[sender, step]
        return entry[0]

    def _ask(self, index: int, pair: int) -> None:
        """Let a worker's weights leave for a partner. `pair`: number of this mean in the run."""
        self._pairs[pair] = self.lender.copy(self._states.of[index].weights)

    def _take_mean(self, index: int, pair: int) -> None:
        """Let the asked worker take the mean of its weights and of those that have arrived."""
        sent = self._pairs[pair]
        mean = self._changed(index).add_(sent).mul_(0.5)
        sent.neg_().add_(mean)

    def _add_change(self, index: int, pair: int) -> None:
        """Let the asking worker add what the mean has changed of the weights that it sent."""
        self._changed(index).add_(self._pairs.pop(pair))

    def _changed(self, index: int) -> Tensor:
        """Return a worker's weights to be changed, copied first if it computes on them."""
        worker, weights = self.workers[index], self._states.of[index].weights
        if worker.virtual.computing and worker.weights is weights:
            worker.weights = self.lender.copy(weights)
        return self._states.own(index)

    # operations: messages to and from servers

    def _push(self, index: int) -> None:
        """Let a worker's message leave for the servers, or for the first worker of its group."""
        worker = self.workers[index]
        worker.message = self._message(worker, messages.Push).value
        if worker.message is worker.gradient:
            worker.forget("gradient")
        if self._own is None:
            worker.forget("weights")  # the answer replaces them

    def _gather(self, index: int) -> None:
        """Add a worker's message to the sum at the first worker of its group."""
        worker, first = self.workers[index], self._counts.group_of(index)[0]
        message, worker.message = worker.message, None
        assert message is not None
        total = self._gathered.get(first)
        self._gathered[first] = message if total is None else total.add_(message)

    def _push_mean(self, first: int) -> None:
        """Let the first worker of a group push the mean of the group."""
        self.workers[first].message = self._gathered.pop(first).div_(self._scheme.group_size)

    def _serve(self, server: int, index: int, update: Update | None) -> None:
        """Take a worker's push, with the statistics of the worker or the mean of its group's."""
        if server == 0:
            own = [self.workers[each].statistics for each in self._counts.group_of(index)]
            self._pushed[index] = torch.stack(own).mean(0) if len(own) > 1 else own[0]
        self._update(server, update)

    def _update(self, server: int, update: Update | None) -> None:
        """Apply what pushes, or the end of a worker, let a server apply."""
        if update is not None:
            self._version = None
            self._served[server].apply(update)

    def _answer(self, server: int, index: int) -> None:
        """Let a server's present weights leave for a worker."""
        worker = self.workers[index]
        self._served[server].answer(index)
        if len(self._served) == 1:
            if self._version is None:
                self._version = self.lender.copy(self._weights)
            worker.incoming, worker.message = self._version, None
            return
        if worker.incoming is None:
            worker.incoming = self.lender.lend()
        first, last = self._bounds[server]
        worker.incoming[first:last].copy_(self._weights[first:last])

    def _answered(self, indices: Sequence[int]) -> None:
        """Let workers have the answers of all servers to the push of the first of them."""
        first = self.workers[indices[0]]
        weights, first.incoming, first.message = first.incoming, None, None
        for index in indices:
            self.workers[index].answers[-1] = weights


class _Placed:
    """Copies of the vectors of a checkpoint, on the device of the run. Vectors that were one stay
    one.
    """

    def __init__(self, lender: Lender) -> None:
        self._lender, self._like = lender, lender.lend()
        self._placed: dict[tuple[int, int], Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self(each) for each in cast("Sequence[Any]", value)]
        if isinstance(value, dict):
            return {key: self(each) for key, each in cast("dict[Any, Any]", value).items()}
        if not isinstance(value, Tensor):
            return value
        key = (value.data_ptr(), value.numel())
        if key not in self._placed:
            fits = value.shape == self._like.shape and value.dtype == self._like.dtype
            here = value.to(self._like.device)
            self._placed[key] = self._lender.copy(here) if fits else here.clone()
        return self._placed[key]
