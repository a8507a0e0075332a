"""Lists what a run does with Lightning's hooks and with the attributes of its Trainer.

docs/what_works.md shows these tables; a test holds them against Lightning's own lists.
"""

import inspect
from typing import Any, Literal

from pytorch_lightning import LightningDataModule, LightningModule
from pytorch_lightning.utilities.model_helpers import is_overridden

from paceline.errors import SettingError

Use = Literal["called", "early", "not called", "refused"]
_USES: dict[Use, str] = {
    "called": """
        backward configure_gradient_clipping configure_optimizers forward on_after_backward
        on_before_backward on_before_optimizer_step on_before_zero_grad on_fit_end on_fit_start
        on_load_checkpoint on_save_checkpoint on_train_batch_end on_train_batch_start on_train_end
        on_train_epoch_end on_train_epoch_start on_train_start optimizer_step teardown
        training_step""",
    "early": "configure_model setup",  # once, by the run, before weights are counted
    "not called": """
        on_predict_batch_end on_predict_batch_start on_predict_end on_predict_epoch_end
        on_predict_epoch_start on_predict_model_eval on_predict_start on_test_batch_end
        on_test_batch_start on_test_end on_test_epoch_end on_test_epoch_start on_test_model_eval
        on_test_model_train on_test_start on_validation_batch_end on_validation_batch_start
        on_validation_end on_validation_epoch_end on_validation_epoch_start
        on_validation_model_eval on_validation_model_train on_validation_model_zero_grad
        on_validation_start predict_dataloader predict_step test_step validation_step""",
    "refused": """
        configure_callbacks configure_sharded_model lr_scheduler_step on_after_batch_transfer
        on_before_batch_transfer optimizer_zero_grad prepare_data test_dataloader train_dataloader
        transfer_batch_to_device val_dataloader""",
}
HOOKS: dict[str, Use] = {hook: use for use, hooks in _USES.items() for hook in hooks.split()}
DATA_HOOKS: dict[str, Use] = {
    **dict.fromkeys(("prepare_data", "setup"), "early"),
    **dict.fromkeys(("train_dataloader", "val_dataloader", "test_dataloader"), "called"),
    **dict.fromkeys(("on_exception", "predict_dataloader", "teardown"), "not called"),
    **dict.fromkeys(("load_state_dict", "state_dict"), "not called"),  # refused with a state
    **dict.fromkeys(
        ("on_after_batch_transfer", "on_before_batch_transfer", "transfer_batch_to_device"),
        "refused",
    ),
}
_INSTEAD = {
    "configure_callbacks": "a run has no callbacks",
    "configure_sharded_model": "use configure_model",
    "lr_scheduler_step": "schedulers are stepped by the batches of all workers",
    "optimizer_zero_grad": "gradients are parts of one vector, which the run clears",
    "prepare_data": "data belong to a LightningDataModule",
    "test_dataloader": "data belong to a LightningDataModule",
    "train_dataloader": "data belong to a LightningDataModule",
    "val_dataloader": "data belong to a LightningDataModule",
}


def check_hooks(module: Any, setting: str) -> None:
    """Raise SettingError(`setting`) for a module that overrides a hook which is refused.

    Such a hook would not be called, or not for every batch, because a Trainer of a run gets no data
    module, and does not evaluate. `setting`: "model" or "data".
    """
    of_data = isinstance(module, LightningDataModule)
    parent: Any = LightningDataModule if of_data else LightningModule
    for hook, use in (DATA_HOOKS if of_data else HOOKS).items():
        if (
            use == "refused"
            and hasattr(parent, hook)
            and is_overridden(hook, module, parent=parent)
        ):
            of_batches = " for every batch; move it to the data set or to collate_fn"
            why = f": {_INSTEAD[hook]}" if hook in _INSTEAD else of_batches
            message = f"{type(module).__name__}.{hook} would not be called{why}"
            raise SettingError(setting, message)
    if not of_data and "dataloader_iter" in inspect.signature(module.training_step).parameters:
        message = f"{type(module).__name__}.training_step draws its batches itself: take (batch, "
        raise SettingError(setting, message + "batch_idx) in place of dataloader_iter")


# Attributes of a Trainer that differ between clocks, and how to do without.
REFUSED = {
    **dict.fromkeys(
        ("device_ids", "num_devices", "num_nodes", "world_size"),
        "a Trainer has one worker or all, depending on the clock; pass workers: ${workers} to the"
        " module, and count steps by trainer.estimated_stepping_batches",
    ),
    **dict.fromkeys(
        ("fit_loop", "is_last_batch", "train_dataloader"),
        "it is that of one process; trainer.estimated_stepping_batches counts the batches of all"
        " workers, and trainer.num_training_batches those of an epoch",
    ),
    **dict.fromkeys(
        (
            *("num_predict_batches", "num_sanity_val_batches", "num_test_batches"),
            *("num_val_batches", "predict_dataloaders", "predict_loop", "test_dataloaders"),
            *("test_loop", "val_dataloaders", "validate_loop"),
        ),
        "a run evaluates without its Trainer",
    ),
    **dict.fromkeys(("fit", "predict", "test", "validate"), "a run has one fit"),
    "strategy": "only workers that DDP trains have the strategy of a plain Trainer",
}
