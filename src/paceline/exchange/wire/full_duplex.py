"""Pushes to several servers, one after another, whose answers are taken as they come.

The first server answers while the others are still being sent to: both directions of the worker's
link are in use.
"""

import selectors
from collections.abc import Iterator, Sequence

from paceline.exchange.wire.header import Header
from paceline.exchange.wire.worker_end import WorkerEnd


def push_pull(ends: Sequence[WorkerEnd], versions: Sequence[int]) -> list[Header]:
    """Push to all `ends` in order, computed on weights of `versions`; return the answers' headers.

    Raises LostPeerError, TimeoutError.
    """
    answers: dict[WorkerEnd, Header] = {}
    turns = iter(zip(ends, versions, strict=True))
    with selectors.DefaultSelector() as selector:
        _begin(turns, selector)
        while len(answers) < len(ends):
            for end, events in _ready(selector, ends[0].timeout_seconds):
                if events & selectors.EVENT_WRITE and end.send_more():
                    selector.modify(end, selectors.EVENT_READ)
                    _begin(turns, selector)
                if events & selectors.EVENT_READ and (header := end.receive_more()) is not None:
                    selector.unregister(end)
                    answers[end] = header
    return [answers[end] for end in ends]


def _begin(turns: Iterator[tuple[WorkerEnd, int]], selector: selectors.BaseSelector) -> None:
    """Begin the push whose turn it is, if any is left."""
    for end, version in turns:
        end.begin_push(version)
        selector.register(end, selectors.EVENT_WRITE)
        return


def _ready(selector: selectors.BaseSelector, timeout_seconds: float) -> list[tuple[WorkerEnd, int]]:
    """Wait for ends that take or have more.

    Raises TimeoutError if none is in time: of a server that takes no push, since those who have
    theirs may wait for it.
    """
    ready = selector.select(timeout_seconds)
    if not ready:  # writing is the greater of the two events
        silent: WorkerEnd = max(selector.get_map().values(), key=lambda key: key.events).fileobj  # type: ignore[assignment]
        raise silent.too_late()
    return [(key.fileobj, events) for key, events in ready]  # type: ignore[misc]
