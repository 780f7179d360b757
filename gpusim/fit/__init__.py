"""Will it fit, and what will it cost?  One program on many machines, as it is and with what makes it fit.

    need.py      what a program holds at its peak, by role
    remedies.py  what is tried, in order, when that is more than a machine has
    study.py     the answer for each machine
    report.py    the answer in words and rows
"""
