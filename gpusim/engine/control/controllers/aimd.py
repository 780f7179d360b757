from gpusim.base.errors import GpusimError
from gpusim.engine.control.controller import Controller


def aimd(start: int = 0, add: int = 4, cut: float = 0.5, stall: float = 0.1) -> Controller:
    """Add samples while all goes well, keep a share of them when memory ran out or kernels waited for it.

    start  samples of the first round; 0: as recorded
    add    samples more after each round that went well
    cut    share that is kept after one that did not
    stall  share of its time that a round may wait for memory

    Source: additive increase, multiplicative decrease (Chiu and Jain, Computer Networks and ISDN Systems 17, 1989).
    """
    if not 0 < cut < 1:
        raise GpusimError(f"parameter 'cut' of controller 'aimd' is {cut:g}", hint="a share between 0 and 1")
    seen = yield start
    while True:
        well = seen.finished and seen.stall_share <= stall
        seen = yield seen.batch + add if well else max(1, int(seen.batch * cut))
