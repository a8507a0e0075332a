"""Speed against peers: ratios in one run, medians of five. `make bench` prints them.

Beside them, what tests notice: faults in the source.
"""
