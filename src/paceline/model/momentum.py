"""Corrects momentum for the implicit momentum of stale gradients."""


def corrected_momentum(momentum: float, staleness: float) -> float:
    """Return the explicit momentum that, added to that of asynchrony, amounts to `momentum`.

    A gradient is momentum / (1 - momentum) updates old on average when it takes effect; with K
    asynchronous workers it is K - 1 updates older, the age that a momentum of 1 - 1/K causes
    (Mitliagkas 2016, arXiv:1605.09774, theorem 3). Ages add up. The result is at least 0. The
    rate is not changed, so that the total effect of a gradient on the weights, which is
    rate / (1 - momentum) in SGD, becomes smaller. `momentum` must be below 1; `staleness` is a mean
    [updates].
    """
    age = max(0.0, momentum / (1 - momentum) - staleness)
    return age / (1 + age)
