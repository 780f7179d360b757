"""Metrics over time: one list of them, what a run gives for each, and the alerts that watch them."""
