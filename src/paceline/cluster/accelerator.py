"""Which device a worker computes on."""

import torch

from paceline.errors import SettingError

CHOICES = ("auto", "cpu", "gpu")


def choose(accelerator: str, workers: int) -> str:
    """ "cuda" or "cpu", the same for all workers of a point.

    Two processes cannot share a GPU under NCCL: too few GPUs are a SettingError that says how to
    go on. Does not initialise CUDA, so that processes can still be forked.
    """
    if accelerator not in CHOICES:
        raise SettingError("cluster.accelerator", f"{accelerator!r}; there are: auto, cpu, gpu")
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


def device(accelerator: str, local_worker: int) -> torch.device:
    return torch.device("cuda", local_worker) if accelerator == "cuda" else torch.device("cpu")
