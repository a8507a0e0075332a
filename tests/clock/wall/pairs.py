"""Two processes that average their weights in pairs: worker 1 asks, worker 0 answers."""

import torch.distributed as dist

from paceline.clock.run_spec import RunSpec, VectorSpec
from paceline.clock.wall.pair_link import pair_link
from paceline.exchange.liveness import LostPeerError
from paceline.exchange.process_group import join, leave, receive_json, send_json
from paceline.exchange.wire import worker_wire
from paceline.scheme.gossip import Gossip

NUM_WEIGHTS = 3


def linked():
    vectors = VectorSpec([{"num_weights": NUM_WEIGHTS}], dtype="float64")
    return pair_link(Gossip("ring"), RunSpec(2), vectors)


def average(node):
    """From 4 and 0; the asked one's step adds 10 when the question has come, then it ends."""
    join(20, "cpu")
    if node is not None:
        worker_wire.this_node = lambda: node
    link = linked()
    link.begin()
    (_asked if dist.get_rank() == 0 else _asking)(link)
    link.finish()
    leave()
    return link.weights.tolist(), link.averages, link.bytes_exchanged


def _asked(link):
    with link.step():
        send_json("ask", 1)
        while link.bytes_exchanged[1] == 0:
            pass
        link.weights.add_(10)
    send_json("ended", 1)


def _asking(link):
    link.weights.fill_(4)
    receive_json(0)
    link.average(0)
    with link.step():
        link.weights.sub_(1)
    receive_json(0)
    link.average(0)


def lose(lost):
    """Connections of worker `lost` end; what the other one is told at last."""
    join(20, "cpu")
    link = linked()
    link.begin()
    worker, told = dist.get_rank(), None
    if worker == lost:
        ends = link._wire._ends.values()
        for end in list(ends):
            (end.connection if worker == 0 else end._connection).shutdown(2)
        send_json("its connection has ended", 1 - worker)
    else:
        receive_json(lost)  # a question before that is still answered
        try:
            link.average(0) if worker == 1 else link.finish()
        except LostPeerError as error:
            told = str(error)
    dist.barrier()
    leave()
    return told
