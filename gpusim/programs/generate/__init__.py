"""Programs that were never recorded: requests of a day and more, made while they are replayed.

    entries()                                        what generators there are, with help and parameters
    get("variable_training(hours=24, batch=8)")      the requests, for `gpusim.policies.trials.allocator_replay`

A generator is one file in `programs/` with one function of its name, found by being there: its docstring is the help, its
arguments are the parameters.  It answers a Schedule: a tape (what is allocated and freed, sizes affine in one number) and the
plays of its sections over time.
"""

from gpusim.programs.generate.registry import Generator, entries, get

__all__ = ["Generator", "entries", "get"]
