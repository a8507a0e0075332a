"""Choice of the device on which a worker computes."""

from typing import Literal

import torch

from paceline.errors import SettingError

Device = Literal["cpu", "cuda"]


def choose(accelerator: Literal["auto", "cpu", "gpu"], workers: int) -> Device:
    """Choose the kind of device for all `workers` of a run.

    Raises SettingError if there are fewer GPUs than workers: two processes cannot share a GPU under
    NCCL. Does not initialise CUDA, so that processes can still be forked.
    """
    gpus = 0 if accelerator == "cpu" else torch.cuda.device_count()
    if accelerator == "cpu" or (accelerator == "auto" and gpus == 0):
        return "cpu"
    if gpus < workers:
        raise SettingError(
            "workers",
            f"{workers} workers need a GPU each, and this machine has {gpus}; "
            "fewer workers, or cluster.accelerator=cpu",
        )
    return "cuda"


def device(accelerator: Device, local_worker: int) -> torch.device:
    return torch.device("cuda", local_worker) if accelerator == "cuda" else torch.device("cpu")
