"""Makes the font files anew: see the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from fontTools import subset  # type: ignore[import-untyped]

from gpusim.show.font import FILES, NAME

# Latin, Greek, and the signs of prose, of units, of directions and of mathematics.
SIGNS = ((0x20, 0x17F), (0x370, 0x3FF), (0x2010, 0x205F), (0x2070, 0x20BF), (0x2190, 0x21FF), (0x2200, 0x22FF))
FAMILY, UNIQUE, FULL, POSTSCRIPT, TYPOGRAPHIC = 1, 3, 4, 6, 16  # the names of a font, by their numbers in it


def make(whole: Path, part: Path) -> None:
    """Cut `part` out of the font `whole`: outlines, hints, widths and kerning of SIGNS, under a name of its own."""
    options = subset.Options(legacy_kern=True, recommended_glyphs=True, name_IDs=["*"], notdef_outline=True)
    options.drop_tables += ["FFTM", "GDEF", "GPOS", "GSUB", "MATH"]
    font: Any = subset.load_font(whole, options)
    cut = subset.Subsetter(options)
    cut.populate(unicodes=[sign for first, last in SIGNS for sign in range(first, last + 1)])
    cut.subset(font)
    full = NAME + " Bold" * ("Bold" in whole.name)
    names = {FAMILY: NAME, TYPOGRAPHIC: NAME, UNIQUE: full, FULL: full, POSTSCRIPT: full.replace(" ", "-")}
    for record in font["name"].names:
        record.string = names.get(record.nameID, record.string)
    font.save(part)


for file, target in FILES.items():
    make(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / file, target)
