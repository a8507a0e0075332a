"""Communication that DDP could not hide behind backward."""

from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch.nn.parallel import DistributedDataParallel


class ExposedCommunication(Callback):
    """Reads DDP's own timing at the end of training: torch samples the first ten steps and every
    hundredth. A timer around an all-reduce that overlaps backward would count hidden time too.

    `seconds_per_step`: communicating, after backward's computation had ended [s]; 0 without DDP.
    `bytes_per_step`: gradients handed to the all-reduce, from DDP's list of buckets.
    """

    def __init__(self) -> None:
        self.seconds_per_step = 0.0
        self.bytes_per_step = 0

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model: Any = trainer.strategy.model
        if not isinstance(model, DistributedDataParallel):
            return
        seen: dict[str, Any] = model._get_ddp_logging_data()
        communicating = seen.get("avg_backward_comm_time", 0)
        hidden = seen.get("avg_backward_compute_comm_overlap_time", 0)
        self.seconds_per_step = max(0, communicating - hidden) / 1e9
        sizes = str(seen.get("rebuilt_bucket_sizes") or seen.get("bucket_sizes") or "")
        self.bytes_per_step = sum(int(size) for size in sizes.split(",") if size.strip())
