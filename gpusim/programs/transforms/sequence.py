"""Longer or shorter sequences."""

from __future__ import annotations

from gpusim.programs.transforms.scaling import factor_of, fitted, scaled
from gpusim.trace.trace import Trace


def sequence(trace: Trace, factor: float = 1.0, to: int = 0, of: int = 0, fit: str = "") -> Trace:
    """The same program on sequences of another length.

    factor  how many times as long
    to      or: how many tokens
    of      how many the recording has, where its meta does not say
    fit     further recordings of the program with other lengths: "a.npz;b.npz"

    From one recording: what is made of an input or of positions grows with it, and with its square what is as large as the
    softmax of an attention; arithmetic of attention kernels grows with the square.  Other masks
    of tokens by tokens are missed.  With `fit`, every size and all work follow a line or a parabola through the recordings,
    and the result's warnings state the error.
    """
    by = factor_of(trace, "sequence", ("seq", "sequence", "seq_or_image"), factor, to, of)
    return fitted(trace, "sequence", by, fit) if fit else scaled(trace, "sequence", by, square=True)
