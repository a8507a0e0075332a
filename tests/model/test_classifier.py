"""The classifier trains as a plain loop does, and is scored by its logits."""

import math
from dataclasses import astuple
from functools import partial

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from paceline.model.classifier import Classifier
from paceline.model.score import Score, score
from paceline.study.compose import composed_each
from tests.tiny import REPOSITORY

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01)


def seeded_network():
    torch.manual_seed(0)
    return nn.Linear(5, 3, dtype=torch.float64)


def test_lightning_training_is_the_plain_loop(tmp_path):
    trained, plain = seeded_network(), seeded_network()
    drawn = torch.Generator().manual_seed(1)
    images = torch.randn(24, 5, generator=drawn, dtype=torch.float64)
    batches = DataLoader(TensorDataset(images, torch.randint(3, (24,), generator=drawn)), 4)
    Trainer(
        accelerator="cpu",
        precision="64-true",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
    ).fit(Classifier(trained, SGD), batches)

    optimizer = SGD(plain.parameters())
    for images, labels in batches:
        optimizer.zero_grad()
        cross_entropy(plain(images), labels).backward()
        optimizer.step()
    torch.testing.assert_close(trained.state_dict(), plain.state_dict(), rtol=0, atol=0)


SMALL, LARGE = (1, 32, 32), (3, 224, 224)


@pytest.mark.parametrize(
    ("model", "image_shape"),
    [
        *((name, SMALL) for name in ("small_cnn", "small_alexnet", "small_nin", "cifar_resnet")),
        *((name, SMALL) for name in ("resnet18", "resnet50", "squeezenet1_1")),
        *((name, LARGE) for name in ("nin", "alexnet", "googlenet")),
    ],
)
def test_every_configuration_builds_a_classifier_with_its_optimizer(model, image_shape):
    data = ("data=image_folder", "data.num_classes=7", f"data.image_shape={[*image_shape]}")
    words = (f"model={model}", *data, "training.lr=0.3", "training.momentum=0.7")
    (swept,) = composed_each(words, REPOSITORY)
    with torch.device("meta"):
        classifier = swept.config.target("model").build()
    images = torch.zeros(1, *image_shape, device="meta")
    assert classifier.eval()(images).shape == (1, 7)
    optimizer = classifier.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (0.3, 0.7)


LOGITS = torch.tensor(
    [
        [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
        [5.0, 6.0, 4.0, 3.0, 2.0, 1.0],
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        [6.0, 5.0, 4.0, 3.0, 2.0, 1.0],
    ]
)
LABELS = torch.tensor([0, 0, 0, 1, 0])  # first, second, last, fifth, first
RIGHT = [1, 0, 0, 0, 1]


def uneven_batches(logits, labels):
    return [(logits[:2], labels[:2]), (logits[2:], labels[2:])]


def test_means_over_images_of_uneven_batches_by_hand():
    total = math.log(sum(math.exp(logit) for logit in range(1, 7)))
    loss = sum(total - logit for logit in (6, 5, 1, 2, 6)) / 5
    measured = score(nn.Identity(), uneven_batches(LOGITS, LABELS), "cpu")
    assert astuple(measured)[:-1] == pytest.approx((loss, 2 / 5, 4 / 5, 5, 6, 4 / 5), rel=1e-6)
    assert np.unpackbits(np.frombuffer(measured.right, np.uint8), count=5).tolist() == RIGHT


def test_top5_of_three_classes_is_one():
    labels = torch.tensor([0, 1, 2, 0, 1])
    measured = score(nn.Identity(), uneven_batches(LOGITS[:, :3], labels), "cpu")
    assert measured.top5 == 1


def test_a_diverged_network_has_no_loss():
    measured = score(nn.Identity(), uneven_batches(LOGITS * math.nan, LABELS), "cpu")
    assert math.isnan(measured.loss)


def test_scoring_perturbs_nothing():
    network = nn.Sequential(nn.BatchNorm1d(6), nn.Dropout())
    network[1].eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    random_state = torch.get_rng_state()
    score(network, uneven_batches(LOGITS, LABELS), "cpu")
    assert [network.training, network[0].training, network[1].training] == [True, True, False]
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random_state)


@pytest.mark.parametrize(("top1", "at_chance"), [(0.10, True), (0.139, True), (0.141, False)])
def test_chance_is_within_three_standard_errors_of_guessing(top1, at_chance):
    """Of 500 images, a tenth of which have one label: 0.1 + 3 x sqrt(0.1 x 0.9 / 500) = 0.1402."""
    found = Score(loss=2.3, top1=top1, top5=0.5, num_images=500, num_classes=20, largest_class=0.1)
    assert found.at_chance == at_chance
