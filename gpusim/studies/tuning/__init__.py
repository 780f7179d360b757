"""Which parameters are best for a question: `gpusim tune` searches where a grid would grow too large.

    axes.py    what of an experiment can be tuned, and how a parameter gets into the text of a policy, transform or tier
    space.py   the key `tune` of an experiment, checked: knobs, and every point that they span
    goals.py   what is minimised, and what a trial's runs come to
    search.py  which point is tried next (Optuna)
    trials.py  points to runs of a results folder
    tune.py    all of it; the best, the Pareto front, the grid of the same budget
"""
