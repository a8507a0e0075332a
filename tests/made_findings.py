"""Findings of a study made by hand, for what is said of them: no study is run or analysed."""

import math
import re
from functools import partial
from types import SimpleNamespace

import pandas as pd

from paceline.analysis.configuration_table import known

NUMBER = re.compile(r"[-+±]?\d[\d,]*(?:\.\d+)?")
NOTHING = pd.DataFrame()


def numbers(text):
    """The numbers that a sentence states, in order."""
    return [found.rstrip(",") for found in NUMBER.findall(text)]


def spread(name, mean, low=math.nan, high=math.nan, n=3):
    return {f"{name}_mean": mean, f"{name}_low": low, f"{name}_high": high, f"{name}_n": n}


def decided(scheme, tier, speedup=(math.nan,) * 3, reached=4, **changes):
    """A row of decision.csv: a scheme of 4 workers whose accuracy nobody has compared."""
    row = {"kind": "virtual", "data": "made", "workers": 4, "scheme": scheme}
    row |= {"n": 4, "n_failed": 0, "n_reached": reached, "target": 0.8, "tier": tier}
    row |= spread("speedup", *speedup) | spread("target_seconds", 1 / (speedup[0] or 1))
    row |= {"baseline": "sync_allreduce", "baseline_n": 4, "baseline_reached": 4}
    row |= {"reference": "sync_allreduce", "at_edge": "", "worker_seconds": 1.0}
    row |= spread("reference_speedup", math.nan) | spread("images_per_second", 100.0, 90.0, 110.0)
    row["less_accurate_than"] = ""
    for side in ("", "one_worker_"):
        row |= spread(f"{side}top1_difference", math.nan)
        row |= {f"{side}accuracy": "", f"{side}within_margin": 0}
    return row | changes


def made_findings(decision=(), axes=("scheme", "workers"), settings=(), target=None, **concluded):
    """Findings with these tables of conclusions; a table that is not given has no row."""
    names = ("configurations", "clock_agreement", "predicted_comparisons")
    tables = dict.fromkeys(names, NOTHING)
    about = {"target": target, "settings": dict(settings), "margin": 1.0}
    runs = pd.DataFrame({"kind": ["virtual"], "status": ["finished"]})
    study = SimpleNamespace(axes=list(axes), about=about, runs=runs, finished=runs)
    study.tuning = pd.DataFrame(columns=["scheme", "chosen"])  # nothing was searched
    tables |= {"decision": pd.DataFrame(list(decision))} | concluded
    of = partial(known, tables["configurations"])
    found = SimpleNamespace(tables=study, concluded=tables, known=of, varying=[], of_size=[])
    found.compares_all = False
    return found
