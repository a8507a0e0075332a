from functools import partial
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import open_dict
from pytorch_lightning import Trainer
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from paceline.model.classifier import Classifier

CONF = Path(__file__).parents[2] / "conf"
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


SMALL_IMAGES = ["++data.image_shape=[1,32,32]", "++data.num_classes=7"]
FOR_IMAGENET = ("nin", "alexnet", "googlenet")


def composed_model(*overrides):
    data = [] if "data=image_folder" in overrides else SMALL_IMAGES
    with initialize_config_dir(str(CONF), version_base="1.3"):
        model = compose("config", overrides=[*data, *overrides]).model
    for setting in ("shards", "split"):  # the run's, not the class's
        with open_dict(model):
            del model[setting]
    return instantiate(model)


@pytest.mark.parametrize(
    "overrides",
    [
        ["model=small_cnn"],
        ["model=small_alexnet"],
        ["model=small_nin"],
        ["model=cifar_resnet"],
        ["model=resnet18"],
        ["model=resnet50"],
        ["model=torchvision", "model.network.name=squeezenet1_1"],
    ],
)
def test_every_configuration_builds_a_classifier_with_its_optimizer(overrides):
    classifier = composed_model(*overrides, "training.lr=0.3", "training.momentum=0.7")
    assert classifier(torch.zeros(1, 1, 32, 32)).shape == (1, 7)
    optimizer = classifier.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (0.3, 0.7)


@pytest.mark.parametrize("name", FOR_IMAGENET)
def test_the_papers_networks_are_classifiers_of_images_of_imagenets_size(name):
    data = ["data=image_folder", "data.num_classes=7"]
    with torch.device("meta"):
        classifier = composed_model(f"model={name}", *data, "training.lr=0.3")
    assert classifier.eval()(torch.zeros(1, 3, 224, 224, device="meta")).shape == (1, 7)
    assert classifier.configure_optimizers().defaults["lr"] == 0.3
