"""The strategy of a worker whose gradients are applied by servers, by its public name."""

from paceline.clock.wall.rule_strategy import RuleStrategy as ParameterServerStrategy

__all__ = ["ParameterServerStrategy"]
