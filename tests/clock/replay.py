"""The weights that servers' records of pushes imply, by no code of the schemes."""

import itertools
from collections import Counter

import torch

from tests.clock.references import Flat, Rate, rule_of
from tests.clock.releases import damped, damped_rate, releasing
from tests.tiny import NUM_TRAIN, batches_of


def replayed(config, seen):
    """The weights that the servers' records of arrivals imply. Servers may see them in different
    orders, so each part of the weights is replayed by its own server's record.
    """
    return Replay(config, seen).weights()


class Replay:
    def __init__(self, config, seen):
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
