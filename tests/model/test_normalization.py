import pytest
from torch import nn

from paceline.model.network import num_groups, replace_batch_norm


@pytest.mark.parametrize(
    ("channels", "groups"), [(3, 1), (8, 2), (16, 4), (58, 1), (64, 16), (96, 8), (512, 32)]
)
def test_groups_are_equal_of_four_channels_or_more_and_at_most_32(channels, groups):
    assert num_groups(channels) == groups


def test_every_batch_norm_is_replaced_however_deep():
    network = nn.Sequential(nn.BatchNorm2d(8), nn.Sequential(nn.ReLU(), nn.BatchNorm2d(16)))
    assert replace_batch_norm(network) == 2
    assert [type(network[0]), type(network[1][1])] == [nn.GroupNorm, nn.GroupNorm]
    assert replace_batch_norm(network) == 0
