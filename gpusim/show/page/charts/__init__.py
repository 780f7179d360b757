"""Figures as Plotly draws them, one module per name of `gpusim.show.figures`: `chart(results) -> Chart`.

The values are those of `gpusim.show.values`; here they get colours, axes and the words that stand beside the pointer.
"""
