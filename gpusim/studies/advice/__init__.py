"""What would help this program on this machine: every remedy that other studies simulate, in one ranked list.

Nothing here decides what is a remedy or what it saves: the allocator's settings and changes of the program come from the OOM
doctor, what trades time for memory, layouts and machines from the study of capacity, hints for unified memory from the search
behind `gpusim faults --advise`.

    answer.py    what is proposed, and what was not tried
    lines.py     what a user copies for a remedy
    allocator.py settings and changes of the program, by the OOM doctor; timed by the study of capacity
    machine.py   remedies, layouts and other machines, by the study of capacity
    hints.py     unified memory and its hints, by the search of `faults`
    inputs.py    from what the user has to a program
    study.py     all of it, ranked
    report.py    in words and as values
"""
