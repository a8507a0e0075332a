"""Corrections for stale gradients that a run cannot have."""

from typing import Any

from paceline.errors import SettingError


def check_corrections(config: dict[str, Any]) -> None:
    """Raises SettingError for one that would act twice, and for one that would act too early."""
    training, scheme = config["training"], config["scheme"]
    if training["lr_rule"] == scheme.get("damping") == "inverse_staleness":
        message = "inverse_staleness, as scheme.damping is: gradients would be divided twice"
        raise SettingError("training.lr_rule", message)
    if training["momentum_correction"] != "none" and _becomes_stale(scheme):
        message = (
            "a run has one momentum, and its gradients are stale only from "
            f"scheme.switch_at={scheme['switch_at']} on"
        )
        raise SettingError("training.momentum_correction", message)


def _becomes_stale(scheme: dict[str, Any]) -> bool:
    """On the way: it switches to servers that do not wait."""
    return scheme.get("servers", 0) > 0 and scheme.get("switch_at") not in (None, 0, 1)
