"""The order of data: design.md's stream, over any number of workers."""

import pytest
import torch

from paceline.data.augmentation import AbstractAugmentation, CropAndFlip
from paceline.data.batches import Normalisation, WorkerBatches, evaluation_batches
from paceline.data.image_set import ImageSet
from paceline.data.order import SampleStream, StreamOrder

NUM_SAMPLES = 30
PIXELS = torch.arange(NUM_SAMPLES * 3 * 5 * 4).mul(7).remainder(256).to(torch.uint8)
IMAGES = ImageSet(PIXELS.reshape(NUM_SAMPLES, 3, 5, 4), torch.arange(NUM_SAMPLES))
MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
AUGMENTATIONS = [None, CropAndFlip(padding=2, flip=True)]


def batches_of(
    worker: int, num_workers: int, batch_size: int, augmentation: AbstractAugmentation | None = None
) -> WorkerBatches:
    return WorkerBatches(
        IMAGES,
        StreamOrder(SampleStream(NUM_SAMPLES, seed=3), num_workers, batch_size),
        Normalisation(MEAN, STD, torch.float64),
        worker=worker,
        num_batches=12,
        augmentation=augmentation,
    )


def test_stream_concatenates_permutations_and_carries_the_remainder_over():
    stream = SampleStream(NUM_SAMPLES, seed=0)
    endless = stream.indices(0, 5 * NUM_SAMPLES).reshape(5, NUM_SAMPLES)
    assert all(epoch.sort().values.equal(torch.arange(NUM_SAMPLES)) for epoch in endless)
    assert len({tuple(epoch.tolist()) for epoch in endless}) == 5
    pieces = [SampleStream(NUM_SAMPLES, seed=0).indices(first, 7) for first in range(0, 140, 7)]
    assert torch.cat(pieces).equal(endless.flatten()[:140])


def test_stream_is_the_same_on_every_version_and_depends_on_its_seed():
    assert SampleStream(8, seed=0).indices(0, 8).tolist() == [7, 5, 6, 0, 3, 1, 2, 4]
    assert SampleStream(8, seed=1).indices(0, 8).tolist() != [7, 5, 6, 0, 3, 1, 2, 4]


def test_going_back_many_epochs_gives_the_same_indices():
    stream = SampleStream(4, seed=0)
    first = stream.indices(0, 100)
    assert stream.indices(0, 100).equal(first)
    assert stream.indices(41, 3).equal(first[41:44])


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_every_sample_once_per_epoch_over_all_workers(num_workers):
    workers = [batches_of(worker, num_workers, 5) for worker in range(num_workers)]
    num_rounds = NUM_SAMPLES // (5 * num_workers)
    seen = [workers[k][n][1] for n in range(num_rounds) for k in range(num_workers)]
    assert torch.cat(seen).sort().values.equal(torch.arange(NUM_SAMPLES))


def test_nth_batch_of_worker_k_is_batch_n_times_K_plus_k_of_the_stream():
    stream = SampleStream(NUM_SAMPLES, seed=3)
    for k in range(4):
        for n, (_, labels) in enumerate(batches_of(k, 4, 7)):
            assert labels.equal(stream.indices((n * 4 + k) * 7, 7))


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
@pytest.mark.parametrize("num_workers", [2, 4])
def test_K_workers_with_batches_of_B_over_K_see_what_one_with_B_sees(num_workers, augmentation):
    alone = batches_of(0, 1, 8, augmentation)
    workers = [
        batches_of(k, num_workers, 8 // num_workers, augmentation) for k in range(num_workers)
    ]
    for n in range(12):
        images, labels = (torch.cat(parts) for parts in zip(*(w[n] for w in workers), strict=True))
        assert images.equal(alone[n][0])
        assert labels.equal(alone[n][1])


def test_batches_are_normalised_per_channel():
    images, labels = batches_of(0, 1, 6)[2]
    shape = (1, 3, 1, 1)
    raw = IMAGES.images[labels].double() / 255
    expected = (raw - torch.tensor(MEAN).double().view(shape)) / torch.tensor(STD).view(shape)
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-6)
    assert images.dtype == torch.float64


def test_batches_are_counted_and_end():
    batches = batches_of(0, 1, 6)
    assert len(batches) == len(list(batches)) == 12
    with pytest.raises(IndexError):
        batches[12]
    with pytest.raises(ValueError, match="worker 2 of 2"):
        batches_of(2, 2, 4)


def test_evaluation_sees_every_image_once_in_order():
    batches = list(evaluation_batches(IMAGES, 8, Normalisation(MEAN, STD, torch.float32)))
    assert [len(labels) for _, labels in batches] == [8, 8, 8, 6]
    assert torch.cat([labels for _, labels in batches]).equal(IMAGES.labels)
    assert batches[0][0].dtype == torch.float32
