"""Accuracy, throughput and time-to-accuracy of SGD that is spread over workers."""
