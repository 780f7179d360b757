"""Foreign recordings become traces: one file per format, recognised by content, gzip or not.

An importer is a function `read(bytes or open file, path, **options) -> Trace`.  What a format does not record (accesses,
times, frees) is listed under `lacks` in the trace's meta, and how the gap was filled under `filled`.
"""

from gpusim.trace.importers.detect import FORMATS, import_trace

__all__ = ["FORMATS", "import_trace"]
