"""A long training run on machines that fail: compute, checkpoints, failures, recovery, on the clock of a job (`loop`)."""
