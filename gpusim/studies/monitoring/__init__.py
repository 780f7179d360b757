"""Metrics over time of the runs of a folder, and how the alerts do at simulated incidents and where nothing is wrong."""
