"""Small agreements between two processes, as JSON; never pickle."""

import json
from typing import Any

import torch
import torch.distributed as dist


def send_json(value: Any, receiver: int) -> None:
    content = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
    dist.send(torch.tensor([content.numel()]), receiver)
    dist.send(content, receiver)


def receive_json(sender: int) -> Any:
    length = torch.zeros(1, dtype=torch.int64)
    dist.recv(length, sender)
    content = torch.zeros(int(length), dtype=torch.uint8)
    dist.recv(content, sender)
    return json.loads(bytes(content.numpy()))
