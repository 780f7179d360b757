"""What fragments a program's memory, and what would fix it: the allocator alone, without time.

    Trace ─requests─▶ Requests ─replay─▶ Replay (one per candidate) ─▶ where the waste sits ─▶ ranked advice
"""
