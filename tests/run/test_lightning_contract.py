"""What a run does with each hook, and each attribute of a Trainer, that Lightning has."""

import fnmatch
import re

import pytest
from pytorch_lightning import LightningDataModule, LightningModule, Trainer
from pytorch_lightning.core.hooks import CheckpointHooks, DataHooks, ModelHooks

from paceline.errors import SettingError
from paceline.run.lightning_contract import DATA_HOOKS, HOOKS, REFUSED, check_hooks
from paceline.run.run_trainer import RunTrainer, Told
from tests.tiny import REPOSITORY

PAGE = (REPOSITORY / "docs/what_works.md").read_text()
# Methods that a module calls, and what it finds out by them
_TOOLS = """
    all_gather automatic_optimization clip_gradients current_epoch device_mesh example_input_array
    fabric freeze from_datasets global_rank global_step load_from_checkpoint local_rank log log_dict
    logger loggers lr_schedulers manual_backward on_gpu optimizers print strict_loading
    to_onnx to_tensorrt to_torchscript toggle_optimizer toggled_optimizer trainer unfreeze
    untoggle_optimizer"""
TOOLS = _TOOLS.split()
# Attributes of a Trainer that a module finds with the number of the run over all workers
_ANSWERED = """
    current_epoch datamodule estimated_stepping_batches global_step max_epochs max_steps
    num_training_batches"""
ANSWERED = _ANSWERED.split()
# Those that are as in any Trainer with one pass of fit and no evaluation
_AS_EVER = """
    accelerator accumulate_grad_batches barebones callback_metrics callbacks check_val_every_n_epoch
    checkpoint_callback checkpoint_callbacks ckpt_path default_root_dir distributed_sampler_kwargs
    early_stopping_callback early_stopping_callbacks enable_autolog_hparams enable_validation
    evaluating fast_dev_run global_rank gradient_clip_algorithm gradient_clip_val init_module
    interrupted is_global_zero lightning_module limit_predict_batches limit_test_batches
    limit_train_batches limit_val_batches local_rank log_dir log_every_n_steps logged_metrics logger
    loggers lr_scheduler_configs min_epochs min_steps model node_rank
    num_sanity_val_steps optimizers overfit_batches precision precision_plugin predicting print
    profiler progress_bar_callback progress_bar_metrics received_sigterm
    reload_dataloaders_every_n_epochs sanity_checking save_checkpoint scaler should_stop state
    testing training val_check_batch val_check_interval validating"""
AS_EVER = _AS_EVER.split()


def public(*kinds):
    return {name for kind in kinds for name in vars(kind) if not name.startswith("_")}


def shown(row, known):
    """Those of `known` that the second cell of the page's row names, as such or by a pattern."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {row}"))
    patterns = re.findall(r"`([\w*]+)`", line.split("|")[2])
    return {name for pattern in patterns for name in fnmatch.filter(known, pattern)}


def test_each_hook_of_lightning_has_its_use():
    own = {"CHECKPOINT_HYPER_PARAMS_KEY", "CHECKPOINT_HYPER_PARAMS_NAME"}
    own |= {"CHECKPOINT_HYPER_PARAMS_TYPE", "call_super_init"}
    hooks = public(ModelHooks, DataHooks, CheckpointHooks, LightningModule)
    assert hooks - {*TOOLS, *own, "name"} == set(HOOKS)
    of_data = public(DataHooks, LightningDataModule) - {*TOOLS, *own, "name"}
    of_data -= {"allow_zero_length_dataloader_with_multiple_devices"}
    assert of_data == set(DATA_HOOKS)


@pytest.mark.parametrize(
    ("kind", "uses", "setting"),
    [(LightningModule, HOOKS, "model"), (LightningDataModule, DATA_HOOKS, "data")],
)
def test_a_hook_that_would_not_be_called_is_refused_and_no_other(kind, uses, setting):
    for hook, use in uses.items():
        if not hasattr(kind, hook):
            continue
        written = type("Own", (kind,), {"training_step": lambda *_: None, hook: lambda *_: None})()
        if use != "refused":
            check_hooks(written, setting)
            continue
        with pytest.raises(SettingError, match=rf"^{setting}: Own\.{hook} would not be called"):
            check_hooks(written, setting)


def test_a_module_that_draws_its_batches_is_refused():
    def training_step(self, dataloader_iter):
        raise AssertionError

    drawing = type("Own", (LightningModule,), {"training_step": training_step})
    with pytest.raises(SettingError, match=r"^model: Own\.training_step draws its batches itself"):
        check_hooks(drawing(), "model")


def test_each_attribute_of_a_trainer_has_its_use():
    trainer = Trainer(logger=False, accelerator="cpu", enable_checkpointing=False)
    found = {name for name in dir(trainer) if not name.startswith("_")}
    assert found == {*ANSWERED, *REFUSED, *AS_EVER}


def test_the_page_shows_these_hooks():
    uses = {
        "called once": "early",
        "not called": "not called",
        "refused |": "refused",
    }
    for row, use in uses.items():
        assert shown(row, HOOKS) == {hook for hook in HOOKS if HOOKS[hook] == use}
    line = re.search(r"- These count for all workers together: [^:]+:", PAGE)[0]
    assert set(re.findall(r"`(\w+)`", line)) == set(ANSWERED)
    shown_as_refused = re.search(r"differs between clocks is refused, .*? \(all", PAGE, re.S)[0]
    assert set() < set(re.findall(r"`([a-z]\w+)`", shown_as_refused)) <= set(REFUSED)


def test_a_module_reads_the_run_s_numbers_and_nothing_that_differs():
    options = {"logger": False, "accelerator": "cpu", "enable_checkpointing": False}
    trainer = RunTrainer(max_epochs=1, **options)
    assert trainer.max_epochs == 1
    trainer.told = Told(num_steps=25, num_epochs=4, num_workers=8, datamodule="data")
    trainer.batches = lambda: 7
    numbers = {name: getattr(trainer, name) for name in ANSWERED}
    assert numbers == {
        "current_epoch": 0,
        "datamodule": "data",
        "estimated_stepping_batches": 25,
        "global_step": 7,
        "max_epochs": 4,
        "max_steps": 25,
        "num_training_batches": 7,
    }
    for name in REFUSED:
        with pytest.raises(SettingError, match=rf"^model: trainer\.{name} has no meaning"):
            getattr(trainer, name)()
    for name in AS_EVER:
        if name != "log_dir":  # which asks other processes
            getattr(trainer, name)
