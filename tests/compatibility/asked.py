"""What somebody brings to a Trainer: modules that know nothing of the project, data and options."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import timm
import torch
import torchvision
from pytorch_lightning import LightningModule, callbacks
from pytorch_lightning.demos.boring_classes import BoringModel, RandomDataset
from pytorch_lightning.demos.transformer import Transformer
from pytorch_lightning.loggers import CSVLogger
from torch import nn
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data import SubsetRandomSampler as Subset
from torch.utils.data import WeightedRandomSampler as Weighted
from torchmetrics import MaxMetric
from torchmetrics.classification import MulticlassAccuracy

IMAGES, CLASSES, BATCH = 32, 4, 4


def images(size=8):
    """Pictures whose brightest channel, or row, is their class."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(IMAGES) % CLASSES
    pictures = torch.rand(IMAGES, 3, size, size, generator=generator)
    for picture, label in zip(pictures, labels.tolist(), strict=True):
        picture[:, label] += 2
    return TensorDataset(pictures, labels)


class Classifying(LightningModule):
    """A network and a cross-entropy, with an optimizer that is given."""

    def __init__(self, network, optimizer=None, schedule=None):
        super().__init__()
        self.network = network
        self._optimizer = optimizer or (lambda weights: torch.optim.SGD(weights, lr=0.01))
        self._schedule = schedule

    def forward(self, pictures):
        return self.network(pictures)

    def training_step(self, batch, batch_idx):
        pictures, labels = batch
        loss = nn.functional.cross_entropy(self(pictures), labels)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        pictures, labels = batch
        self.log("val_loss", nn.functional.cross_entropy(self(pictures), labels))

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = self._optimizer(self.parameters())
        if self._schedule is None:
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": self._schedule(optimizer)}


def line():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, CLASSES))


class Template(Classifying):
    """As lightning-hydra-template does: metrics of torchmetrics, and a rate that waits for them."""

    def __init__(self):
        super().__init__(line(), lambda weights: torch.optim.Adam(weights, lr=0.01))
        self.save_hyperparameters(logger=False)
        self.accuracy, self.best = MulticlassAccuracy(CLASSES), MaxMetric()

    def on_train_start(self):
        self.best.reset()

    def validation_step(self, batch, batch_idx):
        pictures, labels = batch
        self.accuracy(self(pictures), labels)
        self.log("val/acc", self.accuracy, on_epoch=True, prog_bar=True)

    def on_validation_epoch_end(self):
        self.best(self.accuracy.compute())
        self.log("val/best", self.best.compute(), sync_dist=True)


class Autoencoder(Classifying):
    """As in Lightning's introduction: it reconstructs, and needs no labels."""

    def __init__(self):
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(192, 16), nn.ReLU(), nn.Linear(16, 3))
        super().__init__(nn.Sequential(encoder, nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 192)))

    def training_step(self, batch, batch_idx):
        pictures, _ = batch
        return nn.functional.mse_loss(self(pictures), pictures.flatten(1))


class Language(Classifying):
    """Lightning's transformer on token ids: dropout, embeddings and two inputs."""

    def __init__(self):
        sizes = {"ninp": 8, "nhead": 2, "nhid": 8, "nlayers": 1}
        super().__init__(Transformer(vocab_size=16, **sizes))

    def training_step(self, batch, batch_idx):
        tokens, following = batch
        return nn.functional.nll_loss(self.network(tokens, following), following.view(-1))


class Pairs(Dataset):
    """Samples that are dictionaries, nested, of several inputs and a text."""

    def __len__(self):
        return IMAGES

    def __getitem__(self, index):
        label = index % CLASSES
        both = {"left": torch.full((3,), float(label)), "right": torch.ones(3)}
        return {"inputs": both, "label": label, "name": f"sample {index}"}


class Joined(Classifying):
    """Two branches, of which one is an embedding, with LayerNorm."""

    def __init__(self):
        super().__init__(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, CLASSES)))
        self.known = nn.Embedding(CLASSES, CLASSES)

    def training_step(self, batch, batch_idx):
        inputs = torch.cat([batch["inputs"]["left"], batch["inputs"]["right"]], dim=1)
        found = self(inputs) + self.known(batch["label"])
        assert len(batch["name"]) == BATCH
        return nn.functional.cross_entropy(found, batch["label"])


class OneLine(Classifying):
    """Has a layer that never gets a gradient."""

    def __init__(self):
        super().__init__(line())
        self.other = line()


class Hooked(OneLine):
    """Changes its batches as they come to the device, and trains on no other."""

    def on_after_batch_transfer(self, batch, dataloader_idx):
        pictures, labels = batch
        return pictures + 1, labels

    def training_step(self, batch, batch_idx):
        assert batch[0].min() >= 1
        return super().training_step(batch, batch_idx)


class Opponents(OneLine):
    """Two optimizers, which the module steps by itself, as a GAN does."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self):
        return [torch.optim.SGD(each.parameters(), lr=0.01) for each in (self.network, self.other)]


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(images())


def loader(data=None, **options):
    return DataLoader(data or images(), **{"batch_size": BATCH, "shuffle": True, **options})


def tokens():
    draw = torch.Generator().manual_seed(0)
    given = torch.randint(16, (IMAGES, 6), generator=draw)
    return loader(TensorDataset(given, given.roll(-1, 1)))


@dataclass(frozen=True)
class Asked:
    """A module, data and options of the Trainer, and the part of the module that must move."""

    module: Callable[[], LightningModule]
    data: Callable[[], Any] = loader
    validates: bool = False
    options: Callable[[str], dict[str, Any]] | None = None  # of the Trainer, writing to a folder
    moves: Callable[[LightningModule], nn.Module] = field(default=lambda module: module)


def classifying(*arguments, **options):
    return lambda: Classifying(line(), *arguments, **options)


def by(optimizer, **options):
    return classifying(lambda weights: optimizer(weights, lr=0.01, **options))


def scheduled(make, **monitored):
    return classifying(schedule=lambda optimizer: {"scheduler": make(optimizer), **monitored})


def option(**options):
    """A line of weights, by a Trainer with these options."""
    return Asked(classifying(), options=lambda _: options)


def with_callbacks(*make, module=None, validates=False):
    """As `option`, with callbacks that are made for a folder, a logger and checkpoints."""
    bars = dict.fromkeys(("enable_checkpointing", "enable_progress_bar"), True)
    return Asked(
        module or classifying(),
        validates=validates,
        options=lambda folder: (
            bars | {"callbacks": [each(folder) for each in make], "logger": CSVLogger(folder)}
        ),
    )


def network(make, *arguments, **options):
    made = partial(make, *arguments, num_classes=CLASSES, **options)
    return Asked(lambda: Classifying(made()), lambda: loader(images(32)))


def loaded(**options):
    return Asked(classifying(), lambda: loader(**options))


class Backbone(Classifying):
    def __init__(self):
        super().__init__(line())
        self.backbone = nn.Linear(192, 192)

    def forward(self, pictures):
        return self.network[1](self.backbone(pictures.flatten(1)))


ASKED = {
    "BoringModel of Lightning": Asked(BoringModel, lambda: loader(RandomDataset(32, IMAGES))),
    "template: torchmetrics, Adam": Asked(Template, validates=True),
    "autoencoder": Asked(Autoencoder),
    "transformer of Lightning's examples: token ids, dropout": Asked(Language, tokens),
    "dictionaries, several inputs, LayerNorm, Embedding": Asked(Joined, lambda: loader(Pairs())),
    "weights that get no gradient": Asked(OneLine, moves=lambda module: module.network),
    "on_after_batch_transfer and the hooks beside it": Asked(
        Hooked, moves=lambda module: module.network
    ),
    "torch.compile, backend aot_eager": Asked(
        lambda: Classifying(torch.compile(line(), backend="aot_eager"))
    ),
    "manual optimization, two optimizers (GAN)": Asked(Opponents),
    "timm resnet10t": network(timm.create_model, "resnet10t"),
    "timm vit_tiny": network(
        timm.create_model, "vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=12
    ),
    "torchvision mobilenet_v3_small": network(torchvision.models.mobilenet_v3_small),
    "torchvision densenet": network(torchvision.models.DenseNet, 4, (1, 1), 8),
    "SGD, nesterov": Asked(by(torch.optim.SGD, momentum=0.9, nesterov=True)),
    **{
        name: Asked(by(getattr(torch.optim, name)))
        for name in ("AdamW", "RMSprop", "Adagrad", "LBFGS", "Adafactor")
    },
    "StepLR by epochs": Asked(scheduled(lambda each: lr_scheduler.StepLR(each, 1, 0.5))),
    "OneCycleLR by steps": Asked(
        scheduled(lambda each: lr_scheduler.OneCycleLR(each, 0.1, 64), interval="step")
    ),
    "ReduceLROnPlateau": Asked(
        scheduled(lr_scheduler.ReduceLROnPlateau, monitor="val_loss"), validates=True
    ),
    "bf16-mixed": option(precision="bf16-mixed"),
    "gradient_clip_val": option(gradient_clip_val=1.0),
    "accumulate_grad_batches": option(accumulate_grad_batches=2),
    "limit_train_batches, val_check_interval": replace(
        option(limit_train_batches=4, val_check_interval=2), validates=True
    ),
    "overfit_batches": option(overfit_batches=2),
    "ModelCheckpoint": with_callbacks(
        lambda folder: callbacks.ModelCheckpoint(folder, monitor="val_loss"), validates=True
    ),
    "EarlyStopping": with_callbacks(lambda _: callbacks.EarlyStopping("val_loss"), validates=True),
    "LearningRateMonitor, RichProgressBar, CSVLogger": with_callbacks(
        lambda _: callbacks.LearningRateMonitor(), lambda _: callbacks.RichProgressBar()
    ),
    "BackboneFinetuning": with_callbacks(
        lambda _: callbacks.BackboneFinetuning(1), module=Backbone
    ),
    "StochasticWeightAveraging": with_callbacks(
        lambda _: callbacks.StochasticWeightAveraging(0.01)
    ),
    "DataLoader with workers": loaded(num_workers=1, persistent_workers=True),
    "SubsetRandomSampler": loaded(sampler=Subset(range(16)), shuffle=False),
    "WeightedRandomSampler": loaded(sampler=Weighted([1.0] * IMAGES, IMAGES), shuffle=False),
    "IterableDataset": Asked(classifying(), lambda: loader(Streamed(), shuffle=False)),
}
