"""What may be done to gradients before they are sent: the names that settings use."""

COMPRESSIONS = ("none", "fp16", "bf16", "power_sgd")
