"""Computes the learning rate from the number of samples that all workers together have used."""

import math
from dataclasses import dataclass

from paceline.errors import SettingError

_EXPONENTS = {"none": 0.0, "square_root": 0.5, "linear": 1.0}


@dataclass(frozen=True)
class LearningRate:
    """Factor on the base rate, the product of a rule with a warm-up and of a schedule.

    The rule corrects for large batches or stale gradients. Rule `linear` and the warm-up follow
    Goyal 2017 (arXiv:1706.02677), `square_root` Krizhevsky 2014 (arXiv:1404.5997). Rule
    `inverse_staleness` follows Gupta 2016 (arXiv:1509.04210): it divides the rate by the mean
    staleness of equally fast workers if that is above 1. An update that waits for all workers has
    more images than `images_meanwhile`, so that it counts as fresh. A rule that lowers the rate has
    no warm-up. Schedule `cosine` follows Loshchilov 2017 (arXiv:1608.03983), over the whole budget,
    as does `poly`: (1 - share of the budget used)^poly_power, Caffe's schedule of that name, by
    which FireCaffe trained GoogLeNet (Iandola 2016).

    The object survives JSON: `LearningRate(**json.loads(json.dumps(asdict(rate)))) == rate`. The
    settings `training.*` check these values; here SettingError is raised for an empty budget.
    """

    rule: str  # none, linear, square_root, inverse_staleness
    update_batch_size: int  # images in one update of the weights
    reference_batch_size: int  # images in one update at the base rate
    warmup_samples: int  # the rule's factor grows linearly over these; not for rule none
    schedule: str  # constant, cosine, steps, poly
    total_samples: int  # the budget of the run
    milestones: tuple[float, ...]  # fractions of the budget, for schedule steps
    gamma: float  # factor at each milestone, for schedule steps
    poly_power: float  # for schedule poly
    images_meanwhile: float = 0  # mean; of others, from a stale push's read to its arrival

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))  # JSON has lists only
        if self.total_samples < 1:
            raise SettingError("training.epochs", "leaves nothing to train on")

    def factor(self, samples: int, update_batch_size: int | None = None) -> float:
        """Return the factor for the update that follows after `samples` samples of all workers.

        `update_batch_size` is the number of images in this update, if it differs from the others.
        """
        rule = self._rule_factor(samples, update_batch_size or self.update_batch_size)
        return rule * self._schedule_factor(samples / self.total_samples)

    def _rule_factor(self, samples: int, update_batch_size: int) -> float:
        scale = self._scale(update_batch_size)
        if samples >= self.warmup_samples or scale < 1:
            return scale
        return 1 + (scale - 1) * samples / self.warmup_samples

    def _scale(self, update_batch_size: int) -> float:
        if self.rule == "inverse_staleness":
            return 1 / max(1.0, self.images_meanwhile / update_batch_size)
        return (update_batch_size / self.reference_batch_size) ** _EXPONENTS[self.rule]

    def _schedule_factor(self, progress: float) -> float:
        if self.schedule == "cosine":
            return (1 + math.cos(math.pi * min(progress, 1))) / 2
        if self.schedule == "steps":
            return self.gamma ** sum(progress >= milestone for milestone in self.milestones)
        if self.schedule == "poly":
            return max(0.0, 1 - progress) ** self.poly_power
        return 1.0


def corrected_momentum(momentum: float, staleness: float) -> float:
    """Return the explicit momentum that, added to that of asynchrony, amounts to `momentum`.

    A gradient is momentum / (1 - momentum) updates old on average when it takes effect; with K
    asynchronous workers it is K - 1 updates older, the age that a momentum of 1 - 1/K causes
    (Mitliagkas 2016, arXiv:1605.09774, theorem 3). Ages add up. The result is at least 0. The rate
    is not changed, so that the total effect of a gradient on the weights, which is rate / (1 -
    momentum) in SGD, becomes smaller. `momentum` must be below 1; `staleness` is a mean [updates].
    """
    age = max(0.0, momentum / (1 - momentum) - staleness)
    return age / (1 + age)
