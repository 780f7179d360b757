"""The driver's order, but chunks leave before they are needed, while the link has nothing to bring back.

What Li et al. (ETC, ASPLOS 2019) call proactive and Kim et al. (ASPLOS 2020) unobtrusive eviction: a fault finds a free chunk.
What the prefetcher expects soon stays: with `correlation` this is how DeepUM makes room (Jung et al., ASPLOS 2023).
"""

RESERVE = 64  # the driver asks the physical memory manager for as many at once; never more than a sixteenth of the memory
