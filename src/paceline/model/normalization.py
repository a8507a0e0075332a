"""Builds BatchNorm, or GroupNorm, whose layers have no statistics that differ between workers."""

import torch
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


@torch.no_grad()
def remove_batch_norm(network: nn.Module) -> bool:
    """Take every BatchNorm out of one of torchvision's ResNets; return False for other networks.

    Convolutions get the bias that BatchNorm made superfluous. Weights are initialised by rules 1
    and 2 of Fixup (Zhang 2019, arXiv:1901.09321): each residual branch and the classifier begin at
    zero; the other layers of the m in each of L branches begin as for ReLUs (He 2015), times
    L^(-1/(2m-2)). The multipliers of rule 3 are left out.
    """
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet  # late: seconds

    if not isinstance(network, ResNet):
        return False
    _replace_by_biases(network)
    blocks = [each for each in network.modules() if isinstance(each, BasicBlock | Bottleneck)]
    for block in blocks:
        *inner, last = [each for each in block.children() if isinstance(each, nn.Conv2d)]
        for convolution in inner:
            convolution.weight.mul_(len(blocks) ** (-1 / (2 * len(inner))))
        last.weight.zero_()
    network.fc.weight.zero_()
    network.fc.bias.zero_()
    return True


def _replace_by_biases(network: nn.Module) -> None:
    for parent in list(network.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(parent, name, nn.Identity())
            elif isinstance(child, nn.Conv2d):
                nn.init.kaiming_normal_(child.weight, nonlinearity="relu")
                child.bias = nn.Parameter(torch.zeros(child.out_channels))


def has_normalization(network: nn.Module) -> bool:
    """Return True if the network has a layer of torch's or torchvision's that normalises."""
    return any("Norm" in type(each).__name__ for each in network.modules())
