"""Builds BatchNorm, or GroupNorm, whose layers have no statistics that differ between workers."""

from torch import nn

from paceline.errors import SettingError


def normalization_layer(kind: str, channels: int) -> nn.Module:
    """Build a layer for [N, channels, H, W], of the kind "batch", "group" or "none".

    Raises SettingError("model.network.normalization") for another kind.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "group":
        return nn.GroupNorm(num_groups(channels), channels)
    if kind == "none":
        return nn.Identity()
    message = f"{kind!r} is none of batch, group, none"
    raise SettingError("model.network.normalization", message)


def num_groups(channels: int) -> int:
    """Return the number of groups, at most 32 (Wu 2018, arXiv:1803.08494).

    Groups have equal sizes and at least 4 channels each, unless there is a single one.
    """
    return max(
        groups for groups in (1, 2, 4, 8, 16, 32) if groups == 1 or channels % (4 * groups) == 0
    )


def replace_batch_norm(network: nn.Module) -> int:
    """Replace every BatchNorm2d by a GroupNorm; return the number of replaced layers."""
    places = [
        (parent, name, child.num_features)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.BatchNorm2d)
    ]
    for parent, name, channels in places:
        setattr(parent, name, normalization_layer("group", channels))
    return len(places)
