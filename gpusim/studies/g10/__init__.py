"""Unified memory page by page, served at a fixed tick: the cost model of the G10 study (MICRO 2023), and its policies.

`gpusim reproduce g10` is its door.  Everything else of the project times copies on calibrated links; here a tick moves so many
pages, faults and prefetches share it in a fixed order, and latencies do not exist.
"""
