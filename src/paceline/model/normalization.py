"""BatchNorm, or GroupNorm, which has no statistics that workers could disagree about."""

from torch import nn

from paceline.errors import SettingError


def normalization_layer(kind: str, channels: int) -> nn.Module:
    """A layer over [N, channels, H, W] for `batch` or `group`.

    Raises SettingError("model.network.normalization") for another kind.
    """
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    if kind == "group":
        return nn.GroupNorm(num_groups(channels), channels)
    raise SettingError("model.network.normalization", f"{kind!r} is none of batch, group")


def num_groups(channels: int) -> int:
    """At most 32 (Wu 2018, arXiv:1803.08494), of equal size and at least 4 channels each."""
    return max(
        groups for groups in (1, 2, 4, 8, 16, 32) if groups == 1 or channels % (4 * groups) == 0
    )


def replace_batch_norm(network: nn.Module) -> int:
    """Puts a GroupNorm in the place of every BatchNorm2d; says how many there were."""
    places = [
        (parent, name, child.num_features)
        for parent in network.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.BatchNorm2d)
    ]
    for parent, name, channels in places:
        setattr(parent, name, normalization_layer("group", channels))
    return len(places)
