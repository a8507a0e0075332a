"""Defines the settings `measurement.*`, which determine what is measured in a run."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from paceline.errors import SettingError
from paceline.settings import UNKEYED, Count, Neutral, Whole, settings


@settings("measurement.mlflow")
class MLflow:
    """Settings of the MLflow log. Nothing is logged if `tracking_uri` is None."""

    tracking_uri: Annotated[str, Field(min_length=1)] | None
    experiment: str

    def __post_init__(self) -> None:
        if self.tracking_uri and urlsplit(self.tracking_uri).password:
            message = "every record would contain the password; set MLFLOW_TRACKING_USERNAME and "
            message += "MLFLOW_TRACKING_PASSWORD instead, or for PostgreSQL ~/.pgpass"
            raise SettingError("measurement.mlflow.tracking_uri", message)


@settings("measurement")
class Measurement:
    """Settings of what is measured in a run.

    `evaluations`: number of snapshots of the shared weights, evenly spaced in samples; with 0, only
    throughput is measured, and no weights are scored.
    `curve_images`: number of validation images on which every snapshot except the last is scored;
    they are the same images in all runs; None for all validation images. `evaluation_batch_size`:
    number of images that are scored at a time. `warmup_fraction`: share of the steps that is left
    out of the throughput, at the beginning and again at the end of the run.
    """

    evaluations: Count
    curve_images: Annotated[Whole | None, Neutral(None)]
    evaluation_batch_size: Whole
    warmup_fraction: Annotated[float, Field(strict=True, ge=0, lt=0.5)]
    mlflow: Annotated[MLflow, UNKEYED]
