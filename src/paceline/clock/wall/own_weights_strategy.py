"""The strategy of a worker that applies gradients to weights of its own, by its public name."""

from paceline.clock.wall.rule_strategy import RuleStrategy as OwnWeightsStrategy

__all__ = ["OwnWeightsStrategy"]
