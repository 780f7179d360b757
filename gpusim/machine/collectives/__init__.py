"""Collectives among GPUs: NCCL's own estimate and choice, the graphs that it searches on a machine, and their time."""
