"""What if: from the trace of a program to the trace of the same program run another way.

    apply(trace, "precision(to=bf16) | checkpointing(every=2)")     the transforms from left to right
    entries()                                                       which there are, with help and parameters

A transform is one file here with one function of its name, found by being there:
`def name(trace: Trace, parameter=default, ...) -> Trace`, its docstring is the help.  One of your own is such a function under
`@gpusim.transforms.register`.
"""

from gpusim.programs.transforms.registry import NONE, apply, around_ranks, check, entries, register, sources

__all__ = ["NONE", "apply", "around_ranks", "check", "entries", "register", "sources"]
