"""What does refitting the catalogue take, and what of a profile's file does it touch?"""

from __future__ import annotations

from test_calibrate_fit import BASE, MIB, UNFITTED, row

from gpusim.base.yaml import document, validate
from gpusim.calibrate.fit.fitting import fit
from gpusim.machine.profile import Profile
from gpusim.show.calibration_refit import kept, renewed

TEXT = UNFITTED.read_text(encoding="utf-8")
FAR = 2048 * MIB


def test_numbers_of_three_rows_are_taken_and_the_file_stays() -> None:
    """copy moves by 2 %; read by 20 %, against a measured number; write has one row; an empty kernel had no number at all."""
    rows = [row("hbm_copy_bw", 1770.0, FAR)] * 3 + [row("hbm_read_bw", 1420.0, FAR)] * 3 + [row("hbm_write_bw", 1900.0, FAR)]
    fitted = fit([*rows, row("null_kernel_us", 2.5, param="mode=stream")], BASE)
    text = renewed(TEXT, fitted)
    doc = document.loads(text)
    new = validate.build(Profile, doc, context=doc.data["sources"])
    assert (new.memory.copy.value, new.memory.copy.source) == (1770e9, "rows of memory.copy")
    assert (new.memory.read, new.memory.write) == (BASE.memory.read, BASE.memory.write)
    assert new.launch.empty is not None
    assert round(new.launch.empty.value) == 2500 - round(BASE.launch.gap.value)
    assert list(kept(fitted)) == ["memory.read stays 1.776 TB/s (-20% by 3 rows)"]
    changed = set(text.splitlines()) ^ set(TEXT.splitlines())
    assert len(changed) == 5, "a new line for each of the two numbers and their sources, and the copy rate as it was"
    assert renewed(text, fitted) == text


def test_a_curve_replaces_the_one_that_was_there() -> None:
    sizes = (1000, 4000, 8000, 64_000, 1 << 20, 16 << 20, FAR)
    rows = [row("h2d_pinned_bw", s / (3000 + s / (12 if 8000 < s < FAR else 25)), s) for s in sizes]
    fitted = fit(rows, BASE)
    text = renewed(TEXT, fitted)
    assert text.count("size_curve:") == 1
    again = text.replace("  size_curve: ", "  size_curve:  # by hand\n    - [1 kB, 0.4 GB/s]\n  #", 1)
    assert renewed(again, fitted).count("[1 kB, 0.4 GB/s]") == 0
