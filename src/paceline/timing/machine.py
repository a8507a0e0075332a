"""Topology and software of one machine: how many messages pass inside it at once, and whether
gradients are reduced while the backward pass runs.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from paceline.settings import Neutral

# How the accelerators of a machine are connected. `unshared`: each has a link of its own to every
# other, or what they share is not modelled. So it is with `nvswitch` (a crossbar), with `nvlink`
# (for neighbours in a ring), and with `pcie_switch`, which passes all its ports at once: under two
# switches 8 Titan X sum at 8.2 GB/s each, and 2 at 11.3 (github.com/NVIDIA/nccl/issues/44).
# `pcie_host`: all messages pass the host's PCIe root and memory, one at a time (so Dell's reference
# guide Deep Learning with NVIDIA, v1.0, section 3.1.3, of four V100 under PCIe).
Topology = Annotated[
    Literal["unshared", "nvswitch", "nvlink", "pcie_switch", "pcie_host"] | None,
    Neutral("unshared"),
]
_AT_ONCE = {"pcie_host": 1.0}  # one message at a time

# When software reduces gradients: True while the backward pass runs, as they become ready.
_DURING_BACKWARD = {
    "ddp": True,  # buckets of 25 MB (Li et al. 2020, arXiv:2006.15704, section 3.2.3)
    "horovod": True,  # fused tensors, every few ms (Sergeev & Del Balso 2018, arXiv:1802.05799)
    "mxnet": True,  # its engine starts what waits for nothing (Chen et al. 2015, arXiv:1512.01274)
    "tensorflow1": False,  # assumption
    "caffe": False,  # assumption
}


def messages_at_once(topology: str | None) -> float | None:
    """Return how many messages the machine passes at once; None for no limit."""
    return _AT_ONCE.get(topology or "")


def _during_backward(value: Any) -> Any:
    """Return what the software does, or the value itself if it is none of them."""
    if isinstance(value, str) and value not in _DURING_BACKWARD:
        known = ", ".join(_DURING_BACKWARD)
        raise ValueError(f"true, false or one of {known} is needed")
    return _DURING_BACKWARD[value] if isinstance(value, str) else value


Overlap = Annotated[bool, Field(strict=True), BeforeValidator(_during_backward), Neutral(True)]
