"""Loops that know nothing of a clock, nor of the schemes: what the weights of a run must be."""

import itertools
import math
from collections import Counter, deque

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


def unheard(holder, images, weights):
    """What changes are told to: the number of a worker or the part of a server, the images of all
    workers since its last change, and its weights after it.
    """


def plain(config, seen=None):
    """One worker with the whole global batch, in a bare loop."""
    alone = {**config, "workers": 1, "batch_size": config["workers"] * config["batch_size"]}
    reference, batches = PlainSGD(config), batches_of(alone, 0)
    size = alone["batch_size"]
    rate = Rate(config, size)
    for turn in range(config["training"]["epochs"] * NUM_TRAIN // size):
        reference.apply(reference.gradient(*batches[turn]), rate.factor(turn * size))
    return reference.weights()


def averaged(config, seen=None, changed=unheard):
    """Workers with weights of their own, which step together: by the mean of their gradients until
    `switch_at`, later by their own, and then they meet.
    """
    flat, workers, name = Flat(config), range(config["workers"]), config["names"]["scheme"]
    shares = [batches_of(config, worker) for worker in workers]
    held = [flat.first.clone() for _ in workers]
    optimizers = [rule_of(flat.options, flat.first, flat.shapes.values()) for _ in workers]
    images = len(workers) * config["batch_size"]
    num_steps = config["training"]["epochs"] * NUM_TRAIN // images
    rate, meet = Rate(config, images_per_update(config)), meeting(config["scheme"], flat.first)
    switch_at = 1 if name == "sync_allreduce" else config["scheme"].get("switch_at", 0)
    for turn in range(num_steps):
        gradients = [flat.gradient(shares[k][turn], held[k]) for k in workers]
        together = turn < switch_at * num_steps
        if together:
            gradients = [torch.stack(gradients).mean(0)] * len(workers)
        factor = rate.factor(turn * images)
        held = [optimizers[k].step(held[k], gradients[k], factor) for k in workers]
        held = held if together else meet(turn, torch.stack(held))
        for worker, weights in enumerate(held):
            changed(worker, images, weights)
    return flat.named(torch.stack([*held]).mean(0))


def meeting(scheme, first):
    """What workers hold after a step of this number, from what they held after their own steps: a
    mean at the end of each period, towards which an outer SGD may step, whose gradient is what they
    moved; or means by a matrix of who hears whom.
    """
    common, outer = first.clone().requires_grad_(), None
    if "outer_lr" in scheme:
        lr, momentum = scheme["outer_lr"], scheme["outer_momentum"]
        nesterov = scheme["nesterov"] and momentum > 0
        outer = torch.optim.SGD([common], lr, momentum, nesterov=nesterov)

    def by_period(turn, held):
        if (turn + 1) % scheme["period"]:
            return held
        mean = held.mean(0)
        if outer is not None:
            common.grad = common.detach() - mean
            outer.step()
            mean = common.detach().clone()
        return mean.repeat(len(held), 1)

    def by_matrix(turn, held):
        exponents, numbers = math.ceil(math.log2(len(held))) or 1, range(len(held))
        away = [-1, 1] if scheme["graph"] == "ring" else [2 ** (turn % exponents)]
        matrix = torch.eye(len(held), dtype=held.dtype)
        for distance in away:
            for worker in numbers:
                matrix[(worker + distance) % len(held), worker] = 1
        return matrix / matrix.sum(1, keepdim=True) @ held

    return by_matrix if "graph" in scheme else by_period


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


def apart(config, seen, changed=unheard):
    """Workers that never meet: the mean of what each ends with."""
    flat = Flat(config)
    workers = owners(config, seen, flat)
    for worker, report in zip(workers, seen.workers, strict=True):
        numbers = list(report.step_numbers)
        for before, after in itertools.pairwise(numbers):
            worker.end()
            changed(report.worker, (after - before) * config["batch_size"], worker.held)
        assert worker.ended
    return flat.named(torch.stack([worker.held for worker in workers]).mean(0))


def elastic(config, seen, changed=unheard):
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
        changed("center", scheme["period"] * config["batch_size"], center)
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
        while any([self._go_on(index) for index in range(len(self._workers))]):
            pass
        assert not any(self._pending), "means that no two agree on"

    def weights(self):
        return self.flat.named(torch.stack(list(self._ended.values())).mean(0))

    def mean_by_gradients(self):
        return self.flat.named(self.flat.first - self._applied / len(self._workers))

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


def releasing(config):
    """One server's rule: from a push to the workers in an update, and to those who are answered."""
    scheme = config["scheme"]
    pushing = range(0, config["workers"], scheme.get("group_size", 1))
    match config["names"]["scheme"]:
        case "sync_parameter_server":
            return together(len(pushing) - scheme["backup_workers"])
        case "stale_synchronous":
            return bounded(pushing, scheme["bound"])
        case "sync_then_async":
            return switched(len(pushing), scheme["switch_at"])
        case "async_parameter_server" | "mixed":
            return at_once
        case other:
            raise ValueError(f"there is no rule for {other}: write it in tests/clock/references.py")


def at_once(worker, staleness=0, progress=0.0):
    return [worker], [worker]


def together(needed):
    waiting = []

    def arrive(worker, staleness, progress):
        if staleness > 0:
            return [], [worker]
        waiting.append(worker)
        if len(waiting) < needed:
            return [], []
        released = waiting.copy()
        waiting.clear()
        return released, released

    return arrive


def bounded(workers, bound):
    steps, held = Counter({worker: 0 for worker in workers}), set()

    def arrive(worker, staleness, progress):
        steps[worker] += 1
        held.add(worker)
        answered = {each for each in held if steps[each] <= min(steps.values()) + bound}
        held.difference_update(answered)
        return [worker], answered

    return arrive


def switched(workers, switch_at):
    early = together(workers)

    def arrive(worker, staleness, progress):
        return (early if progress < switch_at else at_once)(worker, staleness, progress)

    return arrive


def damped(scheme, gradient, now, read):
    """As Zheng 2017 (ICML; lambda constant) has it."""
    if scheme.get("damping") == "delay_compensation":
        return gradient * (1 + scheme["compensation"] * gradient * (now - read))
    return gradient


def damped_rate(scheme, staleness):
    """Factor on the rate, as Zhang 2016 (IJCAI) has it."""
    damps = scheme.get("damping") == "inverse_staleness" and staleness > 1
    return 1 / staleness if damps else 1.0


def replayed(config, seen, changed=unheard):
    """The weights that the servers' records of arrivals imply. Servers may see them in different
    orders, so each part of the weights is replayed by its own server's record.
    """
    return Replay(config, seen, changed).weights()


class Replay:
    def __init__(self, config, seen, changed):
        self._changed = changed
        self._config, self._reports = config, seen.servers
        self._group_size = config["scheme"].get("group_size", 1)
        self._flat, workers = Flat(config), config["workers"]
        self._rate = Rate(config, config["batch_size"])  # of each update it is told the images
        self._shares = [batches_of(config, worker) for worker in range(workers)]
        self._held = self._flat.first.clone()
        self._read = [self._held.clone() for _ in range(workers)]
        self._gradients = {}
        self._taken, self._answered = ([Counter() for _ in self._reports] for _ in range(2))
        cuts = [len(self._held) * s // len(self._reports) for s in range(len(self._reports) + 1)]
        self._parts = [slice(first, last) for first, last in itertools.pairwise(cuts)]
        self._arrivals = [releasing(config) for _ in self._reports]
        self._sgd = [rule_of(self._flat.options, self._held[part]) for part in self._parts]
        self._samples = [0] * len(self._reports)
        self._late = [{} for _ in self._reports]

    def weights(self):
        """A push is due when every server has it next: its gradient is known then."""
        pending = [list(report.pushes) for report in self._reports]
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
        applied, answered = self._arrivals[server](worker, staleness, progress)
        if applied:
            self._update(server, applied)
        for each in answered:
            self._answered[server][each] += 1
            self._read[each][self._parts[server]] = self._held[self._parts[server]]

    def _update(self, server, workers):
        part, pushed = self._parts[server], []
        for worker in workers:
            gradient = self._gradients[worker, self._taken[server][worker] - 1][part]
            now, read = self._held[part], self._read[worker][part]
            pushed.append(damped(self._config["scheme"], gradient, now, read))
        images = len(workers) * self._group_size * self._config["batch_size"]
        factor = self._rate.factor(self._samples[server], images)
        late = [self._late[server][worker] for worker in workers]
        factor *= damped_rate(self._config["scheme"], max(late))
        mean = torch.stack(pushed).mean(0)
        self._held[part] = self._sgd[server].step(self._held[part], mean, factor)
        self._samples[server] += images
        self._changed((part.start, part.stop), images, self._held[part].clone())
