"""The simulator against measurements: every row becomes a small program that runs through the engine."""
