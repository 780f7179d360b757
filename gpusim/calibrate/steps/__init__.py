"""Whole training steps, measured where there is a GPU and simulated anywhere: memory, kernel times, activations offloaded."""
