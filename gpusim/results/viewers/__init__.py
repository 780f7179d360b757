"""A run's activities in the formats of other viewers: one file per format, `write(run, file)` and `read(file, path)`.

    Result, Trace ─exported─▶ ExportedRun ─write─▶ Perfetto, Chrome ─read─▶ ExportedRun

Both hold every row and every counter, so that what was written is what is read.
"""
