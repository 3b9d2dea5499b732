"""Real models that nobody tuned for, against eager, frozen TorchScript and peers: `python -m benchmarks.zoo`."""
