import torch
from torch.testing import assert_close

from paceline.engine.flat_sgd import FlatSGD, group_segments

GROUPS = [
    {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01},
    {"lr": 0.2, "momentum": 0.0, "weight_decay": 0.1},
    {"lr": 0.05, "momentum": 0.8, "nesterov": True},
]
SIZES = (3, 4, 5)


def test_it_is_torch_optim_sgd_also_after_a_fork():
    """Of three groups; the rate changes; a fork goes on with the momentum and leaves the other."""
    generator = torch.Generator().manual_seed(0)
    weights, *gradients = torch.randn(7, sum(SIZES), generator=generator, dtype=torch.float64)
    parts = [part.clone() for part in weights.split(SIZES)]
    groups = [{"params": [part], **g} for part, g in zip(parts, GROUPS, strict=True)]
    reference = torch.optim.SGD(groups)
    segments = group_segments(reference)
    ours = weights.clone()
    sgd = FlatSGD(ours, segments)
    for turn, gradient in enumerate(gradients):
        if turn == 3:
            left, ours = ours, ours.clone()
            kept, sgd = left.clone(), sgd.fork(ours)
        factor = 1 / (turn + 1)
        pieces = gradient.split(SIZES)
        for group, piece, options in zip(reference.param_groups, pieces, GROUPS, strict=True):
            group["params"][0].grad = piece.clone()
            group["lr"] = options["lr"] * factor
        reference.step()
        sgd.step(gradient, factor)
        assert_close(ours, torch.cat(parts), rtol=1e-15, atol=0)
    assert torch.equal(left, kept)
