"""Event simulator and SGD by numpy and a heap alone: it imports nothing of what it is held against.

Workers take `seconds[worker][n]` for their n-th step on `batches[worker][n]`. A message of m bytes
takes `latency + m / bandwidth`. On one machine it is work of the server, which does one thing at a
time: it takes a push, works `server_seconds`, and answers whom that releases before it takes the
next. Between nodes pushes share the server's link evenly, answers its other direction.
"""

import heapq
import itertools
from dataclasses import dataclass, field

import numpy as np


def gradient(weights, batch):
    """Of the mean cross-entropy of a batch, in the order of the weights."""
    (images, labels), above = batch, weights[85:100].reshape(3, 5)
    inner = np.tanh(images @ weights[:80].reshape(5, 16).T + weights[80:85])
    scores = inner @ above.T + weights[100:]
    shares = np.exp(scores - scores.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    shares /= len(labels)
    back = (shares @ above) * (1 - inner**2)
    return np.concatenate(
        [(back.T @ images).ravel(), back.sum(0), (shares.T @ inner).ravel(), shares.sum(0)]
    )


class SGD:
    """Momentum 0.9 and weight decay 0.01 at a rate of 0.1."""

    def __init__(self, weights):
        self.weights, self.buffer = weights.copy(), None

    def step(self, gradient, factor=1.0):
        decayed = gradient + 0.01 * self.weights
        self.buffer = decayed if self.buffer is None else 0.9 * self.buffer + decayed
        self.weights = self.weights - 0.1 * factor * self.buffer


@dataclass
class World:
    """What is given: seconds of steps, batches, first weights, and what messages take."""

    seconds: list
    batches: list
    first: np.ndarray
    steps: int  # of all workers together
    server_seconds: float = 0.0
    latency: float = 0.0
    bandwidth: float = np.inf
    between_nodes: bool = False

    @property
    def workers(self):
        return len(self.seconds)


@dataclass
class Found:
    """What came of it: weights, and seconds at which each worker's steps ended."""

    weights: np.ndarray
    ends: list
    pushes: list = field(default_factory=list)  # of each server: (worker, staleness), as they came


class Kernel:
    def __init__(self):
        self.now, self._queue, self._count = 0.0, [], itertools.count()

    def at(self, time, what, *arguments):
        heapq.heappush(self._queue, (time, next(self._count), what, arguments))

    def run(self):
        while self._queue:
            self.now, _, what, arguments = heapq.heappop(self._queue)
            what(*arguments)


class Shared:
    """A link whose messages each get an equal share of its bytes per second."""

    def __init__(self, kernel, world):
        self._kernel, self._world = kernel, world
        self._left, self._since, self._version = {}, 0.0, 0

    def send(self, key, size, then, *arguments):
        self._pass()
        self._left[key] = [size, then, arguments]
        self._plan()

    def _pass(self):
        moved = (self._kernel.now - self._since) * self._world.bandwidth
        for message in self._left.values():
            message[0] -= moved / len(self._left)
        self._since = self._kernel.now

    def _plan(self):
        self._version += 1
        if self._left:
            least = max(0.0, min(message[0] for message in self._left.values()))
            wait = least * len(self._left) / self._world.bandwidth
            self._kernel.at(self._kernel.now + wait, self._end, self._version)

    def _end(self, version):
        if version == self._version:
            self._pass()
            least = min(message[0] for message in self._left.values())
            for key in [key for key, message in self._left.items() if message[0] <= least + 1e-9]:
                _, then, arguments = self._left.pop(key)
                self._kernel.at(self._kernel.now + self._world.latency, then, *arguments)
            self._plan()


class Line:
    """What does one thing at a time; the urgent before the rest."""

    def __init__(self, kernel):
        self._kernel, self._busy, self._urgent, self._waiting = kernel, False, [], []

    def enter(self, seconds, what, *arguments, urgent=False):
        (self._urgent if urgent else self._waiting).append((seconds, what, arguments))
        self._go_on()

    def _go_on(self):
        line = self._urgent or self._waiting
        if line and not self._busy:
            seconds, what, arguments = line.pop(0)
            self._busy = True
            self._kernel.at(self._kernel.now + seconds, self._end, what, arguments)

    def _end(self, what, arguments):
        what(*arguments)
        self._busy = False
        self._go_on()


class Server:
    """A part of the weights; `policy` says what a push changes and whom it releases."""

    def __init__(self, served, part, policy, optimizer):
        self.world, self.group, self.policy, self.part = served.world, served.group, policy, part
        self.pushers, self.active = served.pushers, set(served.pushers)
        self.optimizer = optimizer(served.world.first[part])
        self.size = self.optimizer.weights.nbytes
        self.version = self.granted = self.samples = 0
        self.held = {each: self.optimizer.weights.copy() for each in self.pushers}
        self.read = dict.fromkeys(self.pushers, 0)
        self.may, self.pushed, self.late, self.pushes = {}, {}, {}, []
        self._answer, self._line, self._kernel = served.answered, Line(served.kernel), served.kernel
        self._into, self._out = Shared(served.kernel, self.world), Shared(served.kernel, self.world)

    def grant(self, worker):
        self.may[worker] = self.granted < self.world.steps
        self.granted += self.group * self.may[worker]

    def send(self, worker, pushed):
        self.pushed[worker] = pushed[self.part]
        own = self.world.server_seconds
        if self.world.between_nodes:
            self._into.send(worker, self.size, self._line.enter, own, self.take, worker)
        else:
            self._line.enter(self.message() + own, self.take, worker)

    def message(self):
        return self.world.latency + self.size / self.world.bandwidth

    def take(self, worker):
        self.late[worker] = self.version - self.read[worker]
        self.pushes.append((worker, self.late[worker]))
        self.release(*self.policy.arrive(self, worker))

    def leave(self, worker):
        self.active.discard(worker)
        self.release(*self.policy.leave(self, worker))

    def release(self, applied, answered):
        if applied:
            own = [self.policy.damped(self, each) for each in applied]
            factors = [factor for _, factor in own]
            self.optimizer.step(np.mean([change for change, _ in own], 0), min(factors))
            self.version += 1
            self.samples += len(applied) * self.group
        for each in answered:
            self.grant(each)
            self.read[each] = self.version
            content = self.optimizer.weights.copy()
            if self.world.between_nodes:
                self._out.send(each, self.size, self._arrived, each, content)
            else:
                self._line.enter(self.message(), self._arrived, each, content, urgent=True)

    def _arrived(self, worker, content):
        self.held[worker] = content
        self._answer(worker)


class Served:
    """Servers with equal parts of the weights, and workers that go on when all have answered."""

    def __init__(self, world, policy, group=1, servers=1, optimizer=SGD):
        self.world, self.group, self.kernel = world, group, Kernel()
        self.pushers = list(range(0, world.workers, group))
        cuts = [len(world.first) * server // servers for server in range(servers + 1)]
        parts = [slice(*pair) for pair in itertools.pairwise(cuts)]
        self.servers = [Server(self, part, policy(), optimizer) for part in parts]
        self.taken, self.missing = dict.fromkeys(self.pushers, 0), {}
        self.ends = [[] for _ in world.seconds]

    def run(self):
        for each in self.pushers:
            for server in self.servers:
                server.grant(each)
        for each in self.pushers:
            self.begin(each)
        self.kernel.run()
        weights = np.concatenate([server.optimizer.weights for server in self.servers])
        return Found(weights, self.ends, [server.pushes for server in self.servers])

    def begin(self, worker):
        if not self.servers[0].may[worker]:
            for server in self.servers:
                server.leave(worker)
            return
        n = self.taken[worker]
        members = range(worker, worker + self.group)
        longest = max(self.world.seconds[each][n] for each in members)
        self.kernel.at(self.kernel.now + longest, self.computed, worker)

    def computed(self, worker):
        n, members = self.taken[worker], range(worker, worker + self.group)
        weights = np.concatenate([server.held[worker] for server in self.servers])
        own = [gradient(weights, self.world.batches[each][n]) for each in members]
        self.missing[worker] = len(self.servers)
        for server in self.servers:
            server.send(worker, np.mean(own, 0))

    def answered(self, worker):
        self.missing[worker] -= 1
        if not self.missing[worker]:
            self.taken[worker] += 1
            for each in range(worker, worker + self.group):
                self.ends[each].append(self.kernel.now)
            self.begin(worker)


class Policy:
    def damped(self, served, worker):
        """The gradient that a push stands for, and the factor on the rate."""
        return served.pushed[worker], 1.0

    def leave(self, served, worker):
        return [], []


class AtOnce(Policy):
    def arrive(self, served, worker):
        return [worker], [worker]


class Slower(AtOnce):
    """The rate is divided by the staleness."""

    def damped(self, served, worker):
        return served.pushed[worker], 1 / max(1, served.late[worker])


class Compensated(AtOnce):
    """The gradient is moved to the present weights, by 0.04 of its squares."""

    def damped(self, served, worker):
        pushed, since = served.pushed[worker], served.optimizer.weights - served.held[worker]
        return pushed + 0.04 * pushed**2 * since, 1.0


class Bounded(Policy):
    """Stale synchronous: nobody is answered who leads the slowest by more than the bound."""

    def __init__(self, bound):
        self.bound, self.steps, self.line = bound, {}, []

    def arrive(self, served, worker):
        self.steps = self.steps or dict.fromkeys(served.pushers, 0)
        self.steps[worker] += 1
        self.line.append(worker)
        return [worker], self.free(served)

    def leave(self, served, worker):
        return [], self.free(served) if self.steps else []

    def free(self, served):
        slowest = min((self.steps[each] for each in served.active), default=0)
        answered = [each for each in self.line if self.steps[each] - slowest <= self.bound]
        self.line = [each for each in self.line if each not in answered]
        return answered


class Together(Policy):
    """Synchronous, but for `backup` workers; from `until` of the samples on, at once."""

    def __init__(self, backup=0, until=1.0):
        self.backup, self.until, self.line = backup, until, []

    def arrive(self, served, worker):
        if served.samples >= self.until * served.world.steps:
            return [worker], [worker]
        if served.late[worker]:
            served.granted -= served.group
            return [], [worker]
        self.line.append(worker)
        return self.free(served)

    def leave(self, served, worker):
        return self.free(served)

    def free(self, served):
        needed = min(len(served.pushers) - self.backup, len(served.active))
        if not self.line or len(self.line) < needed:
            return [], []
        applied, self.line = self.line, []
        return applied, applied


class Rounds:
    """Workers with weights of their own: each takes the next `length` steps of those of the run."""

    def __init__(self, world, length=1):
        self.world, self.kernel, self.length, self.left = world, Kernel(), length, world.steps
        self.own = [SGD(world.first) for _ in world.seconds]
        self.ends = [[] for _ in world.seconds]
        self.may = [0] * world.workers

    def run(self):
        for worker in range(self.world.workers):
            self.take(worker)
        for worker in range(self.world.workers):
            self.begin(worker)
        self.kernel.run()
        return self.found()

    def take(self, worker):
        taken = min(self.length, self.left)
        self.may[worker] += taken
        self.left -= taken

    def found(self):
        return Found(np.mean([each.weights for each in self.own], 0), self.ends)

    def begin(self, worker):
        n, read = len(self.ends[worker]), self.own[worker].weights.copy()
        if n == self.may[worker]:
            self.end(worker)
            return
        self.beside(worker, n)
        until = self.kernel.now + self.world.seconds[worker][n]
        self.kernel.at(until, self.computed, worker, n, read)

    def computed(self, worker, n, read):
        self.apply(worker, gradient(read, self.world.batches[worker][n]))

    def apply(self, worker, change):
        self.own[worker].step(change)
        self.ends[worker].append(self.kernel.now)
        if len(self.ends[worker]) == self.may[worker]:
            self.take(worker)
        self.begin(worker)

    def beside(self, worker, n):
        pass

    def end(self, worker):
        pass


class Gossiping(Rounds):
    """`partners[worker][n]`: whom a worker asks at the beginning of its n-th step, unless it waits
    for an answer; None: nobody. A message of weights there and one back take the world's time.
    """

    def __init__(self, world, partners):
        super().__init__(world)
        self.partners, self.asking = partners, set()
        self.message = world.latency + world.first.nbytes / world.bandwidth

    def beside(self, worker, n):
        partner = self.partners[worker][n]
        if partner is not None and worker not in self.asking:
            self.asking.add(worker)
            sent = self.own[worker].weights.copy()
            self.later(self.ask, worker, partner, sent)

    def later(self, what, *arguments):
        if self.message:
            self.kernel.at(self.kernel.now + self.message, what, *arguments)
        else:
            what(*arguments)

    def ask(self, worker, partner, sent):
        mean = (self.own[partner].weights + sent) / 2
        self.own[partner].weights = mean
        self.later(self.answer, worker, mean - sent)

    def answer(self, worker, change):
        self.own[worker].weights = self.own[worker].weights + change
        self.asking.discard(worker)


class Elastic(Rounds):
    """Workers and a center pull at each other before every `period`-th step, and at the end."""

    def __init__(self, world, period, elasticity):
        super().__init__(world, period)
        self.period, self.elasticity, self.line = period, elasticity, Line(self.kernel)
        self.center, self.version, self.read = world.first.copy(), 0, [0] * world.workers
        self.pushes = []
        self.message = world.latency + world.first.nbytes / world.bandwidth

    def found(self):
        return Found(self.center, self.ends, [self.pushes])

    def computed(self, worker, n, read):
        change = gradient(read, self.world.batches[worker][n])
        if n and n % self.period == 0:
            self.exchange(worker, self.apply, worker, change)
        else:
            self.apply(worker, change)

    def end(self, worker):
        self.exchange(worker)

    def exchange(self, worker, *then):
        seconds = self.message + self.world.server_seconds
        self.line.enter(seconds, self.pull, worker, then)

    def pull(self, worker, then):
        self.pushes.append((worker, self.version - self.read[worker]))
        force = self.elasticity * (self.own[worker].weights - self.center)
        self.center = self.center + force
        self.version += 1
        self.read[worker] = self.version
        self.line.enter(self.message, self.pulled, worker, force, then, urgent=True)

    def pulled(self, worker, force, then):
        self.own[worker].weights = self.own[worker].weights - force
        if then:
            what, *arguments = then
            what(*arguments)


def meetings(world, period, switch=0.0):
    """Local SGD: workers meet after every `period` steps, on a network that takes no time.

    Before `switch` of the samples they share every gradient; at the end, their weights.
    """
    optimizers, clocks = [SGD(world.first) for _ in world.seconds], np.zeros(world.workers)
    found = Found(None, [[] for _ in world.seconds])

    def meet():
        mean = np.mean([each.weights for each in optimizers], 0)
        for each in optimizers:
            each.weights = mean.copy()

    for n in range(world.steps // world.workers):
        own = [
            gradient(each.weights, of[n])
            for each, of in zip(optimizers, world.batches, strict=True)
        ]
        clocks += [seconds[n] for seconds in world.seconds]
        together = n * world.workers < switch * world.steps
        if together:
            clocks[:] = clocks.max()
            own = [np.mean(own, 0)] * world.workers
        for each, change in zip(optimizers, own, strict=True):
            each.step(change)
        if not together and period and (n + 1) % period == 0:
            clocks[:] = clocks.max()
            meet()
        for worker, ends in enumerate(found.ends):
            ends.append(clocks[worker])
    if period:
        meet()
    found.weights = np.mean([each.weights for each in optimizers], 0)
    return found
