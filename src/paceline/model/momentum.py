"""Momentum where gradients are stale already."""


def corrected_momentum(momentum: float, staleness: float) -> float:
    """What is left to ask for, so that with the momentum that asynchrony begets it is `momentum`.

    A gradient is momentum / (1 - momentum) updates old on average when it acts, and one of K
    asynchronous workers K - 1 updates older: K - 1 is the age that a momentum of 1 - 1/K gives
    (Mitliagkas 2016, arXiv:1605.09774, theorem 3). Ages add up; never below 0. The rate stays as
    it is, so that a gradient moves weights less: by rate / (1 - momentum) in all, as SGD counts it.
    `momentum`: below 1; `staleness`: mean, in updates.
    """
    age = max(0.0, momentum / (1 - momentum) - staleness)
    return age / (1 + age)
