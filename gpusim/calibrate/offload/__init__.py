"""Offloading and swapping in whole systems: published measurements, and what a simulation says of the same configuration."""
