"""What is measured in a run, by `measurement.*`."""

from typing import Annotated

from pydantic import Field

from paceline.settings import Whole, settings


@settings("measurement.mlflow")
class MLflow:
    """Where runs are logged for people. `tracking_uri` None: nowhere."""

    tracking_uri: str | None
    experiment: str


@settings("measurement")
class Measurement:
    """`evaluations`: snapshots of the shared weights, evenly spaced in samples.

    `evaluation_batch_size`: images. `warmup_fraction`: share of the run's steps that the throughput
    leaves out.
    """

    evaluations: Whole
    evaluation_batch_size: Whole
    warmup_fraction: Annotated[float, Field(strict=True, ge=0, lt=1)]
    mlflow: MLflow
