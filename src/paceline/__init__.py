"""What happens to accuracy, throughput and time-to-accuracy as SGD is spread over workers."""
