"""Will it fit, and what will it cost?  One program on many machines, as it is and with what makes it fit.

    need.py         what a program holds at its peak, by role
    remedies.py     what is tried, in order, when that is more than a machine has
    settings.py     the allocator's settings and the context
    times.py        where times come from, and how sure they are
    machine.py      which numbers of a machine are estimates
    study.py        the answer for each machine
    assumptions.py  what the answer rests on
    report.py       all of it in words and rows
"""
