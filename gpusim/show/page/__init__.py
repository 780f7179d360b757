"""The report as one HTML file that needs nothing else: no server, no connection, no other file.

    folder      what is read of a results folder
    content     the values of the page; tables, sentences and figures come from the functions that make them elsewhere
    charts/     one module per figure of `gpusim.show.figures`: its values as Plotly draws them
    pack        columns as text: differences, planes of bytes, compressed
    timeline    a run's activities, and the address map of its heap, as columns
    html        the file: markup, style, scripts and data together
    assets/     markup, style and scripts
"""
