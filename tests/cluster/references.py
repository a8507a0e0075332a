"""Loops that know nothing of a clock: what the weights of a run must be."""

import itertools
from collections import Counter

import torch
from hydra.utils import instantiate

from paceline.scheme.serving import Arrival
from paceline.training.settings import learning_rate
from tests.tiny import NUM_TRAIN, PlainSGD, batches_of


def rate_of(config, images_per_update):
    samples = config["training"]["epochs"] * NUM_TRAIN
    return learning_rate(
        config,
        images_per_update=images_per_update,
        epoch=NUM_TRAIN,
        samples=samples,
        images_in_flight=config["workers"] * config["batch_size"],
    )


def plain_weights(config):
    """One worker with the whole global batch, in a bare loop."""
    alone = {**config, "workers": 1, "batch_size": config["workers"] * config["batch_size"]}
    reference, batches = PlainSGD(config), batches_of(alone, 0)
    size = alone["batch_size"]
    rate = rate_of(config, size)
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // size):
        reference.apply(reference.gradient(*batches[turn]), rate.factor(turn * size))
    return reference.weights()


class Flat:
    """A reference network whose weights and gradients are one vector."""

    def __init__(self, config):
        self._plain = PlainSGD(config)
        self.options = dict(config["model"]["optimizer"])
        if config["training"]["momentum_correction"] == "asynchrony":
            age = self.options["momentum"] / (1 - self.options["momentum"])
            age = max(0, age - (config["workers"] - 1))
            self.options["momentum"] = age / (1 + age)
        self.shapes = {name: value.shape for name, value in self._plain.weights().items()}
        self.first = torch.cat([value.flatten() for value in self._plain.weights().values()])

    def gradient(self, batch, weights):
        found = self._plain.gradient(*batch, self.named(weights))
        return torch.cat([part.flatten() for part in found])

    def named(self, weights):
        pieces = weights.split([shape.numel() for shape in self.shapes.values()])
        return {name: p.view(s) for (name, s), p in zip(self.shapes.items(), pieces, strict=True)}


class Momentum:
    """SGD with momentum and weight decay, written out."""

    def __init__(self, options, like):
        self._options, self._moving, self._fresh = options, torch.zeros_like(like), True

    def step(self, weights, gradient, factor):
        decayed = gradient + self._options["weight_decay"] * weights
        kept = 0 if self._fresh else self._options["momentum"]
        self._moving = kept * self._moving + decayed
        self._fresh = False
        return weights - self._options["lr"] * factor * self._moving


def averaged(config, seen):
    """Workers with weights of their own: the mean of gradients until `switch_at`, later of weights
    after every `period` steps.
    """
    flat, scheme, workers = Flat(config), config["scheme"], range(config["workers"])
    period, switch_at = scheme.get("period", 10**9), scheme.get("switch_at", 0)
    shares = [batches_of(config, worker) for worker in workers]
    held = [flat.first.clone() for _ in workers]
    optimizers = [Momentum(flat.options, flat.first) for _ in workers]
    images = len(workers) * config["batch_size"]
    num_steps = config["training"]["epochs"] * NUM_TRAIN // images
    behind = instantiate(scheme).images_per_update(config["batch_size"], len(workers))
    rate = rate_of(config, behind)
    for turn in range(num_steps):
        gradients = [flat.gradient(shares[k][turn], held[k]) for k in workers]
        together = turn < switch_at * num_steps
        if together:
            gradients = [torch.stack(gradients).mean(0)] * len(workers)
        factor = rate.factor(turn * images)
        held = [optimizers[k].step(held[k], gradients[k], factor) for k in workers]
        if not together and (turn + 1) % period == 0:
            held = [torch.stack(held).mean(0)] * len(workers)
    return flat.named(torch.stack(held).mean(0))


def elastic(config, seen):
    """The center, by the order in which workers came to the server."""
    flat, scheme, workers = Flat(config), config["scheme"], range(config["workers"])
    shares = [batches_of(config, worker) for worker in workers]
    held = [flat.first.clone() for _ in workers]
    optimizers = [Momentum(flat.options, flat.first) for _ in workers]
    center, steps, rate = flat.first.clone(), [0] * len(held), rate_of(config, config["batch_size"])
    images = len(workers) * config["batch_size"]
    (report,) = seen[len(workers) :]
    for worker, _ in report["pushes"]:
        apart = scheme["elasticity"] * (held[worker] - center)
        moved, center = held[worker] - apart, center + apart
        for turn in range(scheme["period"]):
            gradient = flat.gradient(shares[worker][steps[worker]], held[worker])
            start = moved if turn == 0 else held[worker]  # the gradient is of before the exchange
            factor = rate.factor(steps[worker] * images)
            held[worker] = optimizers[worker].step(start, gradient, factor)
            steps[worker] += 1
    return flat.named(center)


def gossiped(config, seen):
    """The mean of workers' weights, each as it was after its last step."""
    return Gossiped(config, seen).weights()


def mean_kept(config, seen):
    """The first weights and all that workers applied, whatever they averaged."""
    return Gossiped(config, seen).mean_by_gradients()


class Gossiped:
    """By the workers' records of their means in pairs: each after so many steps of either."""

    def __init__(self, config, seen):
        self.flat, self._workers = Flat(config), range(config["workers"])
        self._shares = [batches_of(config, worker) for worker in self._workers]
        self._images = len(self._workers) * config["batch_size"]
        self._num_steps = config["training"]["epochs"] * NUM_TRAIN // self._images
        behind = instantiate(config["scheme"]).images_per_update(
            config["batch_size"], len(self._workers)
        )
        self._rate, self._lr = rate_of(config, behind), config["model"]["optimizer"]["lr"]
        self._optimizers = [Momentum(self.flat.options, self.flat.first) for _ in self._workers]
        self.held = [self.flat.first.clone() for _ in self._workers]
        self._begun = list(self.held)  # what each computes on
        self._steps = [0 for _ in self._workers]
        self._ended = {}
        self._applied = torch.zeros_like(self.flat.first)
        self._pending = [list(seen[worker]["averages"]) for worker in self._workers]
        self.in_steps = self._num_in_steps()
        while any([self._go_on(worker) for worker in self._workers]):
            pass
        assert not any(self._pending), "means that no two agree on"

    def weights(self):
        return self.flat.named(torch.stack([self._ended[k] for k in self._workers]).mean(0))

    def mean_by_gradients(self):
        return self.flat.named(self.flat.first - self._applied / len(self._workers))

    def _num_in_steps(self):
        """Means that caught a worker in the middle of a step, with its gradient under way."""
        passive = [k for k in self._workers if k % 2 == 0]
        return sum(steps < self._num_steps for k in passive for steps, _ in self._pending[k])

    def _go_on(self, worker):
        """To the next mean or step, if it is there."""
        steps = self._steps[worker]
        if self._pending[worker] and self._pending[worker][0][0] == steps:
            partner = self._pending[worker][0][1]
            if self._pending[partner][:1] != [(self._steps[partner], worker)]:
                return False
            for each in (worker, partner):
                self._pending[each].pop(0)
            mean = (self.held[worker] + self.held[partner]) / 2
            self.held[worker] = self.held[partner] = mean
            return True
        if steps == self._num_steps:
            return False
        gradient = self.flat.gradient(self._shares[worker][steps], self._begun[worker])
        factor = self._rate.factor(steps * self._images)
        self._applied += self._lr * factor * gradient
        held = self._optimizers[worker].step(self.held[worker], gradient, factor)
        self.held[worker] = self._begun[worker] = held
        self._steps[worker] += 1
        if self._steps[worker] == self._num_steps:
            self._ended[worker] = held
        return True


def replayed(config, seen):
    """The weights that the servers' records of arrivals imply. Servers may see them in different
    orders, so each part of the weights is replayed by its own server's record.
    """
    return Replay(config, seen).weights()


class Replay:
    def __init__(self, config, seen):
        self._config, self._reports = config, seen[config["workers"] :]
        self._group_size = config["scheme"].get("group_size", 1)
        self._flat, self._scheme = Flat(config), instantiate(config["scheme"])
        workers, size = config["workers"], config["batch_size"]
        self._rate = rate_of(config, self._scheme.images_per_update(size, workers))
        self._shares = [batches_of(config, worker) for worker in range(workers)]
        self._held = self._flat.first.clone()
        self._read = [self._held.clone() for _ in range(workers)]
        self._gradients = {}
        self._taken, self._answered = ([Counter() for _ in self._reports] for _ in range(2))
        cuts = [len(self._held) * s // len(self._reports) for s in range(len(self._reports) + 1)]
        self._parts = [slice(first, last) for first, last in itertools.pairwise(cuts)]
        self._serving = [self._scheme.serving(workers) for _ in self._reports]
        self._sgd = [Momentum(self._flat.options, self._held[part]) for part in self._parts]
        self._samples = [0] * len(self._reports)
        self._late = [{} for _ in self._reports]

    def weights(self):
        """A push is due when every server has it next: its gradient is known then."""
        pending = [list(report["pushes"]) for report in self._reports]
        while any(pending):
            before = sum(map(len, pending))
            for worker in range(self._config["workers"]):
                due = [s for s, queue in enumerate(pending) if queue and queue[0][0] == worker]
                turn = min(taken[worker] for taken in self._taken)
                known = (worker, turn) in self._gradients
                for server in due if known or self._has_pulled(worker, turn) else ():
                    if self._taken[server][worker] == turn:
                        self._arrive(server, *pending[server].pop(0), turn)
            assert sum(map(len, pending)) < before, "a push that nobody can have made"
        return self._flat.named(self._held)

    def _has_pulled(self, worker, turn):
        """Every server's answer to its push before this one."""
        return all(answered[worker] == turn for answered in self._answered)

    def _arrive(self, server, worker, staleness, turn):
        if (worker, turn) not in self._gradients:
            group = self._shares[worker : worker + self._group_size]
            gradients = [self._flat.gradient(share[turn], self._read[worker]) for share in group]
            self._gradients[worker, turn] = torch.stack(gradients).mean(0)
        self._taken[server][worker] += 1
        self._late[server][worker] = staleness
        budget = self._config["training"]["epochs"] * NUM_TRAIN
        progress = self._samples[server] / budget
        release = self._serving[server].arrive(Arrival(worker, staleness, progress))
        if release.applied:
            self._update(server, release.applied)
        for each in release.answered:
            self._answered[server][each] += 1
            self._read[each][self._parts[server]] = self._held[self._parts[server]]

    def _update(self, server, workers):
        part, pushed = self._parts[server], []
        for worker in workers:
            gradient = self._gradients[worker, self._taken[server][worker] - 1][part]
            now, read = self._held[part], self._read[worker][part]
            late = self._late[server][worker]
            pushed.append(self._scheme.served(gradient, late, now, read))
        images = len(workers) * self._group_size * self._config["batch_size"]
        factor = self._rate.factor(self._samples[server], images)
        mean = torch.stack(pushed).mean(0)
        self._held[part] = self._sgd[server].step(self._held[part], mean, factor)
        self._samples[server] += images
