"""Settings that exclude split networks, and the values that they may have beside them; the first of
these is the usual one. A process of a split worker knows only a part of the gradient and its norm.
"""

from collections.abc import Mapping, Sequence

from paceline.clock.reports import SERVED_PRECISIONS

POSSIBLE: Mapping[str, Sequence[object]] = {
    "data.shuffle_every": (None,),
    "scheme.collective": ("native",),
    "scheme.compression": ("none",),
    "cluster.workers_per_accelerator": (1,),
    "training.gradient_clip_val": (None,),
    "training.precision": SERVED_PRECISIONS,
}
POSSIBLE_ON_REAL_CLUSTERS: Mapping[str, Sequence[object]] = {
    **POSSIBLE,
    "training.checkpoint_seconds": (None,),
    "workload.name": ("own",),
}
