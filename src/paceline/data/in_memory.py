"""Copies a small data set, split, into the memory of each process."""

import numpy as np
import torch

from paceline.data.image_set import AbstractImageData, ImageSet, Splits
from paceline.data.source import ChannelStatistics, Part, Source, copy_part


def splits_in_memory(data: AbstractImageData, source: Source, origin: str) -> Splits:
    """Check `source` against the settings of `data`, split it and copy it.

    `origin` names the source in messages. Raises SettingError as `data.check` does.
    """
    data.check(source.num_classes, source.image_shape, origin)
    parts = source.parts(data.num_validation, data.split_seed)
    statistics = ChannelStatistics(source.image_shape[0])
    sets = {
        name: _copy(part, statistics if name == "train" else None) for name, part in parts.items()
    }
    mean, std = statistics.mean_and_std()
    return Splits(**sets, mean=mean, std=std)


def _copy(part: Part, statistics: ChannelStatistics | None) -> ImageSet:
    pieces: list[np.ndarray] = []
    copy_part(part, pieces.append, statistics)
    return ImageSet(torch.from_numpy(np.concatenate(pieces)), torch.from_numpy(part.labels))
