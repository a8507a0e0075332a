"""Speed against peers: ratios in one run, medians of five. `make bench` prints them.

Beside them, what tests and processes stand: faults in the source, kills of processes.
"""
