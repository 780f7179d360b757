"""Measurements in other programs' formats, as rows; the format is found by what the file holds."""

from __future__ import annotations

from pathlib import Path

from gpusim.base.errors import MeasurementError
from gpusim.calibrate import rows as ours
from gpusim.calibrate.readers import gpu_benches, nvbandwidth
from gpusim.calibrate.rows import Row


def read(path: Path | str, gpu: str = "") -> list[Row]:
    """The rows of a file: our own CSV or JSON, nvbandwidth's JSON or text, a text of gpu-benches.

    gpu  whose they are, where the file does not say it.  Raises MeasurementError.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return ours.read(path)  # says what is wrong
    if nvbandwidth.is_json(text):
        return nvbandwidth.from_json(text, path, gpu)
    if nvbandwidth.is_text(text):
        return nvbandwidth.from_text(text, path, gpu)
    kind = gpu_benches.kind(text)
    if kind:
        if not gpu:
            raise MeasurementError(f"is {kind} of gpu-benches, which does not say its GPU", str(path), "name it with --gpu")
        return gpu_benches.read(text, kind, path, gpu)
    return ours.read(path)
