"""What the loaders of somebody's DataModule say is honoured, or refused by name."""

import json
import os
import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from paceline.errors import SettingError
from paceline.run import loaders
from paceline.run.loaders import check_same_data, check_training_loader, evaluation_loader, like
from tests.run.own import Drawn, OwnData, own_point
from tests.tiny import run_tiny

SEVEN = TensorDataset(torch.arange(7.0), torch.arange(7))


class Threaded(DataLoader):
    def __iter__(self):
        return super().__iter__()


class Renamed(DataLoader):
    """Somebody's own, which iterates as its base does."""


class Backwards(Sampler):
    def __iter__(self):
        return iter(range(6, -1, -1))

    def __len__(self):
        return 7


class Streamed(IterableDataset):
    def __iter__(self):
        return iter(SEVEN)


def training(**options):
    return DataLoader(SEVEN, **({"batch_size": 2, "shuffle": True} | options))


def test_a_training_loader_is_obeyed_or_refused_by_name():
    half = DistributedSampler(SEVEN, 2, 0)
    chosen = {"shuffle": False}
    refused = {
        "shuffle=False": training(shuffle=False),
        "generator": training(generator=torch.Generator()),
        "the generator": training(
            sampler=RandomSampler(SEVEN, generator=torch.Generator()), **chosen
        ),
        "batch_size=None": training(batch_size=None, shuffle=False),
        "Backwards": training(sampler=Backwards(), **chosen),
        "RandomSampler chooses": training(sampler=RandomSampler(SEVEN, num_samples=5), **chosen),
        "DistributedSampler": training(sampler=half, **chosen),
        "WeightedRandomSampler": training(sampler=WeightedRandomSampler([1.0] * 7, 7), **chosen),
        "BatchedOtherwise": DataLoader(SEVEN, batch_sampler=BatchedOtherwise()),
        "SubsetRandomSampler": DataLoader(
            SEVEN, batch_sampler=BatchSampler(SubsetRandomSampler([0, 1]), 2, False)
        ),
        "Threaded": Threaded(SEVEN, batch_size=2, shuffle=True),
        "map-style": DataLoader(Streamed()),
        "a DataLoader": [SEVEN],
        "worker_init_fn": training(num_workers=1, worker_init_fn=print),
    }
    for said, loader in refused.items():
        with pytest.raises(SettingError, match=f"^data: .*{said}"):
            check_training_loader(loader, in_process=True)
    obeyed = [
        training(drop_last=True),
        training(worker_init_fn=print),
        Renamed(SEVEN, batch_size=2, shuffle=True),
        DataLoader(SEVEN, batch_sampler=BatchSampler(RandomSampler(SEVEN), 2, True)),
    ]
    for loader in obeyed:
        check_training_loader(loader, in_process=True)
    check_training_loader(training(num_workers=1, worker_init_fn=print), in_process=False)


class BatchedOtherwise(Sampler):
    def __iter__(self):
        return iter([[0, 1], [2, 3]])


def test_validation_sees_every_sample_once_whatever_the_loader_says():
    half = DistributedSampler(SEVEN, 2, 0)
    complete = [
        DataLoader(SEVEN, batch_size=3, drop_last=True, shuffle=True),
        DataLoader(SEVEN, batch_size=3, sampler=half),
        DataLoader(SEVEN, batch_sampler=BatchSampler(half, 3, True)),
        DataLoader(SEVEN, batch_size=None),
        DataLoader(Streamed(), batch_size=3, num_workers=2),
        Renamed(SEVEN, batch_size=3, sampler=SequentialSampler(SEVEN)),
    ]
    for loader in complete:
        seen = [label for _, labels in evaluation_loader(loader) for label in labels.reshape(-1)]
        assert [int(each) for each in seen] == list(range(7))


def test_validation_on_a_choice_of_samples_is_refused_by_name():
    refused = {
        "SubsetRandomSampler": DataLoader(SEVEN, sampler=SubsetRandomSampler([0, 1])),
        "BatchedOtherwise": DataLoader(SEVEN, batch_sampler=BatchedOtherwise()),
        "HalfOfHalf": DataLoader(SEVEN, sampler=HalfOfHalf(SEVEN, 2, 0)),
        "Threaded": Threaded(SEVEN),
        "list": [DataLoader(SEVEN)],
    }
    for said, loader in refused.items():
        with pytest.raises(SettingError, match=f"^data: .*{said}"):
            evaluation_loader(loader)


class HalfOfHalf(DistributedSampler):
    pass


def test_options_of_the_loader_s_processes_are_kept():
    options = {"worker_init_fn": print, "timeout": 3.0, "prefetch_factor": 5}
    context = {"multiprocessing_context": "spawn", "persistent_workers": True}
    found = like(training(num_workers=1, **options, **context), SEVEN, batch_size=2)
    assert {name: getattr(found, name) for name in options} == options
    assert found.persistent_workers
    assert found.multiprocessing_context.get_start_method() == "spawn"


class Files:
    """Items by the names of files in a folder."""

    def __init__(self, folder, names, seed=None):
        self.folder, self.samples = folder, [(f"{folder}/{name}", 0) for name in names]
        self.random, self.transform, self.process = random.Random(seed), print, seed


def test_data_of_another_worker_that_differ_are_named(monkeypatch):
    def compare(ours, theirs):
        store = torch.distributed.HashStore()
        monkeypatch.setattr(loaders, "run_store", lambda: store)
        monkeypatch.setattr(loaders, "draw_number", lambda name: 0)
        monkeypatch.setattr(loaders, "worker_index", lambda: 1)
        monkeypatch.setattr(loaders.dist, "is_initialized", lambda: True)
        monkeypatch.setattr(loaders.dist, "get_world_size", lambda: 2)
        for rank, data in enumerate((ours, theirs)):
            monkeypatch.setattr(loaders.dist, "get_rank", lambda rank=rank: rank)
            monkeypatch.setattr(os, "getpid", lambda rank=rank: rank + 1)  # also an index
            check_same_data({"training": data})

    images = torch.rand(7, 3)
    equal = [
        (SEVEN, SEVEN),
        (Subset(SEVEN, [1, 2]), Subset(SEVEN, [1, 2])),
        (Files("/here", "ab", 1), Files("/there", "ab", 2)),
        (np.array(["/here/a"]), np.array(["/there/a"])),
    ]
    for pair in equal:
        compare(*pair)
    different = [
        (Subset(SEVEN, [1, 2]), Subset(SEVEN, [2, 1])),
        (Subset(SEVEN, [1, 2]), Subset(SEVEN, np.array([1, 3]))),
        (Files("/here", "ab"), Files("/here", "ba")),
        (TensorDataset(images), TensorDataset(images + 1)),
        (TensorDataset(images), TensorDataset(images[:6])),
        (np.array(["/here/a"]), np.array(["/here/b"])),
    ]
    for pair in different:
        with pytest.raises(SettingError, match=r"^data: the training set of worker 1 "):
            compare(*pair)


class Shuffled(OwnData):
    """A split and random numbers of batches by the three global generators."""

    def setup(self, stage):
        self.order = list(range(48))
        random.shuffle(self.order)
        np.random.shuffle(self.order)
        split = torch.randperm(48).tolist()
        self.parts = [[self.order[n] for n in part] for part in (split[:40], split[40:])]

    def train_dataloader(self):
        with open(f"{self._folder}/parts.jsonl", "a") as file:  # noqa: PTH123
            file.write(json.dumps(self.parts) + "\n")

        def noted(items):
            drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
            with open(f"{self._folder}/drawn.jsonl", "a") as file:  # noqa: PTH123
                file.write(json.dumps(drawn) + "\n")
            return torch.utils.data.default_collate(items)

        data = Subset(Drawn(), self.parts[0])
        return DataLoader(data, batch_size=5, shuffle=True, collate_fn=noted)

    def val_dataloader(self):
        return DataLoader(Subset(Drawn(), self.parts[1]), batch_size=5)

    test_dataloader = val_dataloader


def shuffled_run(folder, clock, seed=3):
    folder.mkdir()
    data = {"_target_": f"{__name__}.Shuffled", "folder": str(folder)}
    run_tiny(own_point(clock=clock, data=data, training__epochs=1, seed=seed), folder)
    return [
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("parts", "drawn")
    ]


def test_a_split_is_equal_and_what_is_drawn_in_training_is_not(tmp_path):
    """On both clocks, and each time by the same seed."""
    ours, drawn = shuffled_run(tmp_path / "wall", "wall")
    assert ours[0] == ours[1]
    for kind in zip(*drawn, strict=True):
        assert len(set(kind)) == len(kind)  # of two workers and of several batches
    for name in ("virtual", "again"):
        assert shuffled_run(tmp_path / name, "virtual")[0] == ours[:1]
    assert shuffled_run(tmp_path / "other", "virtual", seed=4)[0] != ours[:1]
