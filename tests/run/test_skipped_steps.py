"""Only a return of None in training_step itself is taken for a step that may be skipped."""

import pytest
from pytorch_lightning import LightningModule

from paceline.run.checked_module import where_none


class ByMode(LightningModule):
    def training_step(self, batch, batch_idx):
        if self.mode == "one":
            return self.shared(batch, "train")
        elif self.mode == "two":
            return self.shared(batch, "train") + self.other(batch)

    def shared(self, batch, stage):
        if stage != "train":
            return None
        return batch

    def other(self, batch):
        return batch


class Asserting(LightningModule):
    def training_step(self, batch, batch_idx):
        if batch_idx:
            return batch
        assert False, "unknown"  # noqa: B011, PT015


class Failing(LightningModule):
    def training_step(self, batch, batch_idx):
        try:
            return batch.mean()
        except ValueError as error:
            self.fail(error)


class Trying(LightningModule):
    def training_step(self, batch, batch_idx):
        for _ in range(3):
            try:
                return batch.mean()
            except* ValueError:
                self.zero_grad()


class Searching(LightningModule):
    def training_step(self, batch, batch_idx):
        for part in batch:
            if part.isfinite():
                loss = part
                break
        else:
            raise ValueError("there is no finite one")
        return loss


class Noting(LightningModule):
    def training_step(self, batch, batch_idx):
        def note(loss):
            if loss is None:
                return
            self.last = loss

        note(batch)
        return batch


class Bare(LightningModule):
    def training_step(self, batch, batch_idx):
        if batch_idx == 7:
            return
        return batch


class OfNone(LightningModule):
    def training_step(self, batch, batch_idx):
        with self.profiled():
            return None if batch_idx == 7 else batch


class Inheriting(OfNone):
    pass


@pytest.mark.parametrize("kind", [ByMode, Asserting, Failing, Trying, Searching, Noting])
def test_a_step_that_does_not_say_none_is_left_to_the_run(kind):
    assert where_none(kind()) == ""


@pytest.mark.parametrize("kind", [Bare, OfNone, Inheriting])
def test_a_return_of_none_is_found(kind):
    code = kind.training_step.__code__
    line = code.co_firstlineno + 2
    assert where_none(kind()) == f"test_skipped_steps.py, line {line}"
