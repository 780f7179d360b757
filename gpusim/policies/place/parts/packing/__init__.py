"""Static offset planning: buffers whose sizes and lives are known get fixed offsets, so that the highest end is low.

    buffers     what is planned, from a trace; the live peak, a bound
    fit         placing one buffer after the other (compiled)
    greedy      good orders for that, and climbing to better ones
    search      exact: is there a plan within this capacity? (compiled; on a `board`, by the `valleys` of its floor)
    portfolio   the search started in several ways
    plan        all of them together
    table       buffers from files, plans as CSV
"""
