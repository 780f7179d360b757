from gpusim.engine.control.controller import Controller


def bisect(start: int = 0, stall: float = 1.0) -> Controller:
    """Double until a round fails, close in on the largest batch that works, keep it; begin anew when that fails later.

    start  samples of the first round; 0: as recorded
    stall  share of its time that a round may wait for memory before it counts as failed

    Source: `scale_batch_size` of PyTorch Lightning's Tuner, mode "binsearch", which searches once, before training.
    """
    seen = yield start
    while True:
        works, fails = 0, 0  # the largest batch known to work, the smallest known not to; 0: none
        while not (works and fails == works + 1):
            if seen.finished and seen.stall_share <= stall:
                works, fails = seen.batch, fails if fails > seen.batch else 0
            else:
                fails, works = seen.batch, works if works < seen.batch else 0
            if fails == 1:
                break
            seen = yield (works + fails) // 2 if works and fails else 2 * works or fails // 2
        while True:
            seen = yield max(1, works)
            if not (seen.finished and seen.stall_share <= stall):
                break
