"""Measure a machine, fit a profile to it, compare the simulator with it."""
