"""Schedulers, step times and whole runs of serving engines, against real classes, measured operators and published runs."""
