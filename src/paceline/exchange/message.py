"""Small values exchanged between two processes as JSON, never pickle."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | float | None


def send_json(value: Json, receiver: int) -> None:
    """Send a value to the process of rank `receiver`."""
    content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    dist.send(torch.tensor([content.numel()]), receiver)
    dist.send(content, receiver)


def receive_json(sender: int) -> Any:
    """Wait for a value from the process of rank `sender`."""
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, sender)
    content = torch.zeros(int(length), dtype=torch.uint8)
    dist.recv(content, sender)
    return json.loads(bytes(content.numpy()))
