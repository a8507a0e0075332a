from functools import partial

import pytest
import torch
from pytorch_lightning import Trainer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from paceline.model.classifier import Classifier
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
