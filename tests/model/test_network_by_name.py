"""Networks of libraries by name: their libraries, their images, and their published sizes."""

import importlib.util
from functools import partial

import pytest
from torch import nn
from torchvision import models

from paceline.errors import SettingError
from paceline.model import network_by_name
from paceline.model.count_layers import count_kept, count_layers
from paceline.model.network import torchvision_network
from paceline.model.network_by_name import (
    library_names,
    library_of,
    own_image_shape,
    timm_network,
    without_weights,
)

NETWORKS = [
    *("vit_b_16", "convnext_tiny", "efficientnet_b0", "swin_t", "swin_v2_t"),
    *("resnet50", "resnext50_32x4d", "regnet_y_16gf", "inception_v3", "mobilenet_v3_small"),
    "shufflenet_v2_x1_0",
]


def built(name):
    shape = own_image_shape(name)
    return without_weights(lambda: torchvision_network(name, shape, 1000, "batch")), shape


def test_multiply_adds_and_weights_are_those_that_torchvision_publishes():
    for name in NETWORKS:
        size = count_layers(*built(name))
        meta = next(iter(models.get_model_weights(name))).meta
        assert size.multiply_adds / 1e9 == pytest.approx(meta["_ops"], abs=6e-4), name
        if name != "inception_v3":  # published with its auxiliary head
            assert sum(size.tensors) == meta["num_params"], name


@pytest.mark.parametrize(
    ("name", "library", "shape"),
    [
        ("vit_b_16", "torchvision", (3, 224, 224)),
        ("inception_v3", "torchvision", (3, 299, 299)),
        ("vit_h_14", "torchvision", (3, 518, 518)),
        ("vit_base_patch16_384", "timm", (3, 384, 384)),
        ("small_cnn", None, None),
    ],
)
def test_a_name_has_a_library_and_the_images_for_which_it_is_published(name, library, shape):
    assert library_of(name) == library
    assert own_image_shape(name) == shape


def test_a_network_of_timm_is_counted_for_images_of_any_size():
    """DeiT-S and its like: 4.6 G multiply-adds at 224 (Touvron 2021, arXiv:2012.12877, Table 5)."""
    pixels = {224: None, 112: None}
    for side in pixels:
        asked = ("deit_small_patch16_224", (3, side, side), 1000)
        network = without_weights(partial(timm_network, *asked))
        pixels[side] = count_layers(network, (3, side, side)).multiply_adds
    assert pixels[224] / 1e9 == pytest.approx(4.6, abs=0.05)
    assert 3 < pixels[224] / pixels[112] < 5


def test_a_network_without_weights_has_none_and_others_are_not_touched():
    network, _ = built("resnet18")
    assert all(each.is_meta for each in network.parameters())
    assert not nn.Linear(2, 3).weight.is_meta
    computing = without_weights(lambda: [nn.Linear(2, 3), nn.Linear(2, 3).weight.tolist()][0])
    assert not computing.weight.is_meta


def test_backward_keeps_the_inputs_of_linear_layers_and_what_relu_returned():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
    count_layers(network, (3, 2, 2))
    assert count_kept(network, (3, 2, 2)) == 12 + 5


def test_what_is_asked_of_timm_and_not_there_is_one_line(monkeypatch):
    with pytest.raises(SettingError, match=r"^model.network.name: timm has no 'resnet50_z'; perh"):
        timm_network("resnet50_z", (3, 224, 224), 10)
    monkeypatch.setattr(network_by_name, "find_spec", lambda name: None)
    assert library_of("vit_base_patch16_224") is None
    assert "vit_base_patch16_224" not in library_names()
    with pytest.raises(SettingError, match=r"timm is not installed.*pip install timm$"):
        timm_network("vit_base_patch16_224", (3, 224, 224), 10)
    assert importlib.util.find_spec("timm")
