"""One figure per file, each a function `draw(results, ...) -> Figure`; `gpusim.show.figures` lists them."""
