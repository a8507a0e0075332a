"""Measures accuracy, throughput and time-to-accuracy of SGD on several workers."""
