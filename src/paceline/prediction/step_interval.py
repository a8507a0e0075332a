"""Interval of a step's time that follows from FLOPs and an assumed utilisation.

`benchmarks/step_times.py` compares this rule with the published images/s of papers/step_times.csv.
Its errors have a factor as the model's own (`prediction_interval.factor`), where each kind of
network counts as an experiment, and is predicted by shares fitted to all other kinds.
"""

STEP_FACTOR = 1.53  # within which the images/s of 90 % of the kinds of networks are
