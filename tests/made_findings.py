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


def decided(scheme, verdict, speedup=(math.nan,) * 3, **changes):
    """A row of decision.csv: a scheme of 4 workers."""
    row = {"kind": "virtual", "data": "made", "workers": 4, "scheme": scheme, "verdict": verdict}
    row |= spread("speedup", *speedup) | spread("efficiency", speedup[0] / 4)
    row |= spread("images_per_second", 100.0, 90.0, 110.0) | spread("top1", 0.9, 0.89, 0.91)
    return row | spread("one_worker_top1_difference", -0.003, -0.004, -0.002) | changes


def made_findings(decision=(), axes=("scheme", "workers"), rate="tuned", **concluded):
    """Findings with these tables of conclusions; a table that is not given has no row."""
    tables = dict.fromkeys(("configurations", "clock_agreement", "predicted_comparisons"), NOTHING)
    about = {"target": None, "settings": {"training.rate": rate}, "margin": 1.0, "axes": [*axes]}
    run = {"kind": "virtual", "status": "finished", "top1": 0.9, "test_top1": 0.9, "workers": 4}
    runs = pd.DataFrame([run | {"scheme": each["scheme"]} for each in decision or [{"scheme": ""}]])
    study = SimpleNamespace(axes=list(axes), about=about, runs=runs, finished=runs, margin=0.01)
    study.tuning = pd.DataFrame(columns=["scheme", "chosen"])  # nothing was searched
    study.facets = list(axes)[1:]
    tables |= {"decision": pd.DataFrame(list(decision))} | concluded
    of = partial(known, tables["configurations"])
    found = SimpleNamespace(tables=study, concluded=tables, known=of, varying=[], of_size=[])
    found.compares_all = False
    return found
