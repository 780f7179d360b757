"""Foreign recordings become traces: one file per format.  `gpusim.programs.recordings` is the door to them.

An importer is a function `read(bytes or open file, path, **options) -> Trace`.  What a format does not record (accesses,
times, frees) is listed under `lacks` in the trace's meta, and how the gap was filled under `filled`.
"""
