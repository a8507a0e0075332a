"""Speed against peers: ratios in one run, medians of five. `make bench` prints them."""
