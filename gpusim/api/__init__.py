"""The library: what `import gpusim` offers, as thin faces around values of the rooms below.

    runs        simulate: one run
    result      Result: what it left behind, as attributes, DataFrame, figure or table
    grids       Experiment, run, Results: many runs that answer one question
    inputs      load_trace, load_machine
    transforming transform: the same program run another way
    machines    machines of several GPUs, and the routes between their nodes
    questions   fit, oom: the studies that have a verb of their own
    checking    check: the referee
"""
