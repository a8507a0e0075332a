"""Bytes that plans and models of a step say they need, beside those that the allocator counts.

Also a program, since torch and oneDNN choose their instructions when they are loaded. `NARROW` in
the environment leaves them AVX2, where convolutions run by other kernels: those in bf16 by torch's
own, which unfold the images of a whole batch.
"""

import json
import os
import subprocess
import sys
from random import Random

import pytest
import torch

from paceline.model.classifier import Classifier
from paceline.model.network import torchvision_network
from paceline.model.nin import NiN
from paceline.model.small_cnn import SmallCNN
from paceline.prediction.blocks import PLAIN, applied, find_blocks
from paceline.prediction.measure_blocks import built_step, measure_blocks
from paceline.prediction.race import choice_of
from paceline.prediction.step_memory import Step, count_memory, measure_peak, phases_on_cpu
from paceline.record.point import Point
from paceline.study.compose import composed
from tests.tiny import CONF

NARROW = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
PROCESSORS = ["this processor", pytest.param("AVX2", marks=pytest.mark.slow)]
NETWORKS = {  # with the shape of an image
    "small_cnn": (lambda: SmallCNN((1, 28, 28), 10, 16, "batch"), (1, 28, 28)),
    "resnet18": (lambda: torchvision_network("resnet18", (3, 32, 32), 10, "batch"), (3, 32, 32)),
    "nin": (lambda: NiN((3, 67, 67), 10), (3, 67, 67)),
}


def on(processor, function, *arguments):
    """Return what a function of this module returns, by the instructions of a processor."""
    if processor == "this processor":
        return function(*arguments)
    command = [sys.executable, "-m", "tests.prediction.counted_bytes", function.__name__]
    ended = subprocess.run(
        [*command, json.dumps(arguments)],
        env={**os.environ, **NARROW},
        cwd=CONF.parent,
        check=True,
        stdout=subprocess.PIPE,
    )
    computes_bf16, found = json.loads(ended.stdout)
    assert not computes_bf16
    return found


def of_plans(settings, num_random):
    """Return bytes said and counted by plan: the plain one, the smallest one, and random ones."""
    point = Point.of(composed(settings, CONF.parent))
    programme = measure_blocks(point, 1).programme
    draw = Random(0)
    plans = [
        programme.plan([block.option(PLAIN) for block in programme.blocks]),
        programme.smallest(),
    ]
    for _ in range(num_random):
        plans.append(programme.plan([draw.choice(block.options) for block in programme.blocks]))
    peaks = [plan_peak(point, choice_of(programme, plan)) for plan in plans]
    return [(plan.fullest.bytes, peak) for plan, peak in zip(plans, peaks, strict=True)]


def plan_peak(point, choice):
    """Return the peak bytes of a step by a choice; call it in a process of its own."""

    def build():
        step = built_step(point)
        blocks = find_blocks(step.module)

        def take():
            with applied(blocks, choice):
                step.take()

        return take

    return measure_peak(build()) if point.device == "cuda" else peak_on_cpu(build)


def peak_on_cpu(build):
    """Return the most bytes of the CPU's allocator in the second of two steps.

    `build` makes the network and returns the step, since what existed before is not reported.
    """

    def steps():
        take = build()
        take()
        yield
        take()

    return phases_on_cpu(steps())[1].peak


def of_steps(cases):
    """Return bytes said and counted for each (network, batch size), without the constant part."""
    torch.set_num_threads(1)
    return [_of_step(*NETWORKS[name], batch_size) for name, batch_size in cases]


def _of_step(build, shape, batch_size):
    counted = count_memory(Classifier(build(), momentum), shape, batch_size)
    measured = peak_on_cpu(lambda: Step(Classifier(build(), momentum), shape, batch_size).take)
    constant = counted.weights + counted.gradients + counted.optimizer
    return counted.peak - constant, measured - constant


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=0.01)


if __name__ == "__main__":
    found = globals()[sys.argv[1]](*json.loads(sys.argv[2]))
    print(json.dumps([torch.ops.mkldnn._is_mkldnn_bf16_supported(), found]))
