"""Loops that know nothing of a clock: what the weights of a run must be."""

import torch
from hydra.utils import instantiate

from paceline.training.settings import learning_rate
from tests.tiny import NUM_TRAIN, PlainSGD, batches_of


def rate_of(config, images_per_update):
    samples = config["training"]["epochs"] * NUM_TRAIN
    return learning_rate(
        config,
        images_per_update=images_per_update,
        epoch=NUM_TRAIN,
        samples=samples,
        images_meanwhile=images_meanwhile(config),
    )


def images_meanwhile(config):
    """Of the others, who all push once between two of a worker's; half of them where it waits for
    all after each.
    """
    others = (config["workers"] - config["scheme"].get("group_size", 1)) * config["batch_size"]
    return others / 2 if config["scheme"].get("bound") == 0 else others


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
