"""Computes the learning rate from the number of samples that all workers together have used."""

import math
from dataclasses import dataclass

from paceline.errors import SettingError

_EXPONENTS = {"none": 0.0, "square_root": 0.5, "linear": 1.0}


@dataclass(frozen=True)
class LearningRate:
    """Computes the factor by which the base learning rate is multiplied at each update.

    The factor is the product of a rule's factor and a schedule's factor. The rule corrects the rate
    for large batches or for stale gradients (computed from weights that were updated since):

    - `linear` multiplies by the update's images / `reference_batch_size` (Goyal 2017,
      arXiv:1706.02677), `square_root` by the root of that (Krizhevsky 2014, arXiv:1404.5997).
    - `inverse_staleness` divides by the mean staleness [updates] that workers of equal speed would
      have, if it is above 1 (Gupta 2016, arXiv:1509.04210). It is `images_meanwhile` / the update's
      images. For an update that waits for all workers this is below 1, and the factor is 1.

    During warm-up (Goyal 2017) the factor of a rule grows from 1; factors below 1 apply at once.

    Schedules depend on the share of the budget (`total_samples`) that is used. `cosine` decays to 0
    at the end of the budget (Loshchilov 2017, arXiv:1608.03983). `poly` is (1 - share)^poly_power,
    Caffe's schedule of that name, by which FireCaffe trained GoogLeNet (Iandola 2016). `steps`
    multiplies by `gamma` at each of the `milestones`.

    The object survives JSON: `LearningRate(**json.loads(json.dumps(asdict(rate)))) == rate`. Raises
    SettingError for an empty budget; the settings `training.*` check all other values.
    """

    rule: str  # none, linear, square_root, inverse_staleness
    update_batch_size: int  # images in one update of the weights
    reference_batch_size: int  # images in one update at the base rate
    warmup_samples: int  # number of samples over which the rule's factor grows linearly from 1
    schedule: str  # constant, cosine, steps, poly
    total_samples: int  # the budget of the run
    milestones: tuple[float, ...]  # fractions of the budget, for schedule steps
    gamma: float  # factor at each milestone, for schedule steps
    poly_power: float  # for schedule poly
    # mean number of images of other workers that are applied from the time at which a worker reads
    # the weights until the gradient that it computed from them arrives
    images_meanwhile: float = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))  # JSON has lists only
        if self.total_samples < 1:
            raise SettingError("training.epochs", "leaves nothing to train on")

    def factor(self, samples: int, update_batch_size: int | None = None) -> float:
        """Return the factor for the update that follows after `samples` samples of all workers.

        `update_batch_size`: number of images in this update; None for that of the object.
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
    """Return the optimizer's momentum that, with the effect of staleness, amounts to `momentum`.

    `momentum` must be below 1. `staleness`: mean number of updates between the computation of a
    gradient and its use.

    Momentum applies a gradient momentum / (1 - momentum) updates late on average. Asynchrony delays
    a gradient by its staleness: K - 1 updates for K workers, as a momentum of 1 - 1/K would
    (Mitliagkas 2016, arXiv:1605.09774, theorem 3). The delays add up, so the momentum returned
    causes the delay of `momentum` less the staleness; it is at least 0. The learning rate is not
    changed. So the total effect of a gradient on the weights, which is rate / (1 - momentum) in
    SGD, becomes smaller.
    """
    age = max(0.0, momentum / (1 - momentum) - staleness)
    return age / (1 + age)
