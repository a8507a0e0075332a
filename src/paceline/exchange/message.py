"""Small values exchanged between two processes as JSON, never pickle."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from paceline.exchange.process_group import members

Json: TypeAlias = Mapping[str, "Json"] | Sequence["Json"] | str | float | None


def send_json(value: Json, receiver: int) -> None:
    """Send a value to the member `receiver` of the run."""
    content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    dist.send(torch.tensor([content.numel()]), group=members(), group_dst=receiver)
    dist.send(content, group=members(), group_dst=receiver)


def receive_json(sender: int) -> Any:
    """Wait for a value from the member `sender` of the run."""
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, group=members(), group_src=sender)
    content = torch.zeros(int(length), dtype=torch.uint8)
    dist.recv(content, group=members(), group_src=sender)
    return json.loads(bytes(content.numpy()))
