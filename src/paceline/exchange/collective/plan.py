"""A collective as a plan: which part of the vector moves from whom to whom, round by round.

A plan is about all workers and holds no data, so that it can be checked without processes. In a
round every worker hands over what it held when the round began, and takes what arrives.
"""

from itertools import zip_longest
from typing import NamedTuple

from paceline.exchange.shard import shard_bounds

_PIECES = 64  # to fill a pipeline costs a few percent at most, and a round a millisecond or less
_LEAST_PIECE = 4096  # elements; a smaller message costs no less


class Move(NamedTuple):
    """The elements [first, last) from `sender` to `receiver`, who adds them or holds them then."""

    sender: int
    receiver: int
    first: int
    last: int
    adds: bool


Round = tuple[Move, ...]
Plan = tuple[Round, ...]


def together(plans: list[Plan]) -> Plan:
    """All of them at once, round by round."""
    rounds = zip_longest(*plans, fillvalue=())
    return tuple(tuple(move for moves in at_once for move in moves) for at_once in rounds)


def among(members: range, plan: Plan) -> Plan:
    """The same plan, with the n-th of `members` in the part of worker n."""
    return tuple(
        tuple(
            move._replace(sender=members[move.sender], receiver=members[move.receiver])
            for move in moves
        )
        for moves in plan
    )


def pieces(first: int, last: int) -> list[tuple[int, int]]:
    """[first, last) cut for a pipeline, into equal parts to within one element."""
    count = max(1, min(_PIECES, (last - first) // _LEAST_PIECE))
    return [(first + start, first + end) for start, end in shard_bounds(last - first, count)]
