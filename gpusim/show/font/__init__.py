"""The letters of all figures: DejaVu Sans as far as figures need it, so that they look alike with every matplotlib.

matplotlib puts into each PDF the part of a font that the PDF uses.  To cut it out of the whole DejaVu Sans takes longer
than to draw the figure, because of the tables with which other scripts are typeset; here they are left out already.
Letters that are missing here come from the DejaVu Sans of matplotlib.  Licence: LICENSE_DEJAVU.

    python -m gpusim.show.font      makes the files anew from those of matplotlib; needs fontTools, which comes with it
"""

from __future__ import annotations

from pathlib import Path

NAME = "gpusim Sans"
FILES = {name: Path(__file__).with_name(name) for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf")}
