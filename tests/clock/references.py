"""Loops that know nothing of a clock: what the weights of a run must be."""

import math
from collections import deque

import torch
from hydra.utils import instantiate

from tests.tiny import NUM_TRAIN, PlainSGD, batches_of


class Rate:
    """Factor on the rate, written out by the papers: rule, warm-up over epochs, and schedule."""

    def __init__(self, config, images):
        self._settings, self._images = config["training"], images
        self._meanwhile = images_meanwhile(config)

    def factor(self, samples, images=None):
        """Of the update that follows after so many samples, and has `images` behind it."""
        scale = self._scale(images or self._images)
        warm = self._settings["warmup_epochs"] * NUM_TRAIN
        if scale > 1 and samples < warm:
            scale = 1 + (scale - 1) * samples / warm
        return scale * self._scheduled(samples / (self._settings["epochs"] * NUM_TRAIN))

    def _scale(self, images):
        growth = images / self._settings["lr_reference_batch_size"]
        return {
            "none": 1,
            "square_root": growth**0.5,
            "linear": growth,
            "inverse_staleness": 1 / max(1, self._meanwhile / images),
        }[self._settings["lr_rule"]]

    def _scheduled(self, progress):
        return {
            "constant": 1,
            "cosine": (1 + math.cos(math.pi * progress)) / 2,
            "steps": self._settings["gamma"]
            ** sum(progress >= milestone for milestone in self._settings["milestones"]),
            "poly": (1 - progress) ** self._settings["poly_power"],
        }[self._settings["schedule"]]


def images_per_update(config):
    """Of all workers where they average among themselves, of one where each goes its own way."""
    alone = config["scheme"]["_target_"].endswith(("ElasticAveraging", "Independent"))
    return config["batch_size"] * (1 if alone else config["workers"])


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
    rate = Rate(config, size)
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


class TorchsOwn:
    """Another optimizer, over one vector, or over the tensors of these shapes in it."""

    def __init__(self, options, like, shapes):
        self._shapes = shapes or [like.shape]
        self._weights = [torch.zeros(s, dtype=like.dtype).requires_grad_() for s in self._shapes]
        self._optimizer = instantiate(options)(self._weights)

    def step(self, weights, gradient, factor):
        sizes = [shape.numel() for shape in self._shapes]
        parts = zip(self._weights, weights.split(sizes), gradient.split(sizes), strict=True)
        for weight, held, change in parts:
            weight.data = held.view_as(weight).clone()
            weight.grad = change.view_as(weight).clone()
        group = self._optimizer.param_groups[0]
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor
        self._optimizer.step()
        return torch.cat([weight.detach().flatten() for weight in self._weights])


def rule_of(options, like, shapes=()):
    """The optimizer that a point's model has, over one vector."""
    if options["_target_"] == "torch.optim.SGD":
        return Momentum(options, like)
    return TorchsOwn(options, like, [*shapes])


def averaged(config, seen):
    """Workers with weights of their own: the mean of gradients until `switch_at`, later of weights
    after every `period` steps, and at the end.
    """
    flat, scheme, workers = Flat(config), config["scheme"], range(config["workers"])
    period, switch_at = scheme["period"], scheme.get("switch_at", 0)
    shares = [batches_of(config, worker) for worker in workers]
    held = [flat.first.clone() for _ in workers]
    optimizers = [rule_of(flat.options, flat.first, flat.shapes.values()) for _ in workers]
    images = len(workers) * config["batch_size"]
    num_steps = config["training"]["epochs"] * NUM_TRAIN // images
    rate = Rate(config, images_per_update(config))
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


def outer(config, seen):
    """Local SGD whose means are what torch's SGD steps towards: its gradient is what they moved."""
    flat, scheme, workers = Flat(config), config["scheme"], range(config["workers"])
    shares = [batches_of(config, worker) for worker in workers]
    held = [flat.first.clone() for _ in workers]
    optimizers = [rule_of(flat.options, flat.first) for _ in workers]
    common = flat.first.clone().requires_grad_()
    momentum = scheme["outer_momentum"]
    above = torch.optim.SGD(
        [common], scheme["outer_lr"], momentum, nesterov=scheme["nesterov"] and momentum > 0
    )
    images = len(workers) * config["batch_size"]
    num_steps = config["training"]["epochs"] * NUM_TRAIN // images
    rate = Rate(config, images_per_update(config))
    for turn in range(num_steps):
        gradients = [flat.gradient(shares[k][turn], held[k]) for k in workers]
        factor = rate.factor(turn * images)
        held = [optimizers[k].step(held[k], gradients[k], factor) for k in workers]
        if (turn + 1) % scheme["period"] == 0:
            common.grad = common.detach() - torch.stack(held).mean(0)
            above.step()
            held = [common.detach().clone() for _ in workers]
    return flat.named(torch.stack(held).mean(0))


def mixed(config, seen):
    """A matrix of who is in whose mean, for each step, on the weights of all workers."""
    flat, workers = Flat(config), config["workers"]
    shares = [batches_of(config, worker) for worker in range(workers)]
    held = flat.first.repeat(workers, 1)
    optimizers = [rule_of(flat.options, flat.first) for _ in range(workers)]
    images = workers * config["batch_size"]
    rate = Rate(config, images_per_update(config))
    exponents = math.ceil(math.log2(workers))
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // images):
        away = [-1, 1] if config["scheme"]["graph"] == "ring" else [2 ** (turn % exponents)]
        matrix = torch.eye(workers, dtype=held.dtype)
        for distance in away:
            for worker in range(workers):
                matrix[(worker + distance) % workers, worker] = 1
        factor = rate.factor(turn * images)
        moved = [
            optimizers[k].step(held[k], flat.gradient(shares[k][turn], held[k]), factor)
            for k in range(workers)
        ]
        held = matrix / matrix.sum(1, keepdim=True) @ torch.stack(moved)
    return flat.named(held.mean(0))


class Own:
    """A worker with weights of its own, whose steps have these numbers among those of all."""

    def __init__(self, config, seen, worker, flat):
        size = config["batch_size"]
        self._flat = flat
        self._optimizer = rule_of(flat.options, flat.first, flat.shapes.values())
        self._batches, self.num_steps = batches_of(config, worker), seen.workers[worker].steps
        rate = Rate(config, images_per_update(config))
        self._factors = [rate.factor(number * size) for number in seen.workers[worker].step_numbers]
        self.held, self.steps, self._gradient = flat.first.clone(), 0, None

    @property
    def ended(self):
        return self.steps == self.num_steps

    @property
    def factor(self):
        return self._factors[self.steps]

    def begin(self):
        """The gradient of its next step, at what it holds now."""
        if self._gradient is None and not self.ended:
            self._gradient = self._flat.gradient(self._batches[self.steps], self.held)
        return self._gradient

    def end(self):
        """Its step, from what it holds by now."""
        gradient, self._gradient = self.begin(), None
        self.held = self._optimizer.step(self.held, gradient, self.factor)
        self.steps += 1


def owners(config, seen, flat):
    return [Own(config, seen, worker, flat) for worker in range(config["workers"])]


def apart(config, seen):
    """Workers that never meet: the mean of what each ends with."""
    flat = Flat(config)
    workers = owners(config, seen, flat)
    for worker in workers:
        while not worker.ended:
            worker.end()
    return flat.named(torch.stack([worker.held for worker in workers]).mean(0))


def elastic(config, seen):
    """The center, by the order in which workers came to the server."""
    flat, scheme = Flat(config), config["scheme"]
    workers, center = owners(config, seen, flat), flat.first.clone()
    (report,) = seen.servers
    for index, _ in report.pushes:
        worker = workers[index]
        for _ in range(scheme["period"]):
            worker.end()
        worker.begin()  # the gradient is of before the exchange
        moved = scheme["elasticity"] * (worker.held - center)
        worker.held, center = worker.held - moved, center + moved
    assert all(worker.ended for worker in workers)
    return flat.named(center)


def unmoved(config, seen):
    """The weights before the first step."""
    flat = Flat(config)
    return flat.named(flat.first)


def gossiped(config, seen):
    """The mean of workers' weights, each as it was after its last step."""
    return Gossiped(config, seen).weights()


def mean_kept(config, seen):
    """The first weights and all that workers applied, whatever they averaged."""
    return Gossiped(config, seen).mean_by_gradients()


class Gossiped:
    """By the workers' records of their means in pairs: when each was sent, formed and held."""

    def __init__(self, config, seen):
        self.flat, self._lr = Flat(config), config["model"]["optimizer"]["lr"]
        self._workers = owners(config, seen, self.flat)
        self._ended = {}
        self._applied = torch.zeros_like(self.flat.first)
        self._pending = [deque(seen.workers[index].averages) for index in range(len(self._workers))]
        self._under_way = {}  # by active worker: what it sent, and the mean once it is formed
        self.in_steps = self._num_in_steps()
        while any([self._go_on(index) for index in range(len(self._workers))]):
            pass
        assert not any(self._pending), "means that no two agree on"

    @property
    def held(self):
        return [worker.held for worker in self._workers]

    def weights(self):
        return self.flat.named(torch.stack(list(self._ended.values())).mean(0))

    def mean_by_gradients(self):
        return self.flat.named(self.flat.first - self._applied / len(self._workers))

    def _num_in_steps(self):
        """Means that caught a worker in the middle of a step, with its gradient under way."""
        last = [worker.num_steps for worker in self._workers]
        return sum(
            mean.held_after < last[k] for k, means in enumerate(self._pending) for mean in means
        )

    def _go_on(self, index):
        """To the next part of a mean or step, if it is there."""
        worker = self._workers[index]
        worker.begin()
        if self._pending[index]:
            go_on = self._ask if index % 2 else self._be_asked
            gone_on = go_on(index, worker, self._pending[index][0])
            if gone_on is not None:
                return gone_on
        if worker.ended:
            return False
        self._applied += self._lr * worker.factor * worker.begin()
        worker.end()
        if worker.ended:
            self._ended[index] = worker.held
        return True

    def _ask(self, index, worker, mean):
        """True once a part of its next mean is done, False if it must wait, None if it is later."""
        if index not in self._under_way:
            if worker.steps == mean.sent_after:
                self._under_way[index] = [worker.held]
                return True
            return None
        if worker.steps < mean.held_after:
            return None
        if len(self._under_way[index]) == 1:
            return False
        sent, formed = self._under_way.pop(index)
        worker.held = worker.held + formed - sent
        self._pending[index].popleft()
        return True

    def _be_asked(self, index, worker, mean):
        """Likewise, of a worker that is asked."""
        if worker.steps < mean.held_after:
            return None
        partner = self._pending[mean.partner]
        under_way = self._under_way.get(mean.partner, ())
        if len(under_way) != 1 or partner[0].partner != index:
            return False
        worker.held = (worker.held + under_way[0]) / 2
        under_way.append(worker.held)
        self._pending[index].popleft()
        return True
