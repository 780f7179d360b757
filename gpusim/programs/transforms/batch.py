"""A larger or smaller batch."""

from __future__ import annotations

from gpusim.programs.transforms.scaling import factor_of, fitted, scaled
from gpusim.trace.trace import Trace


def batch(trace: Trace, factor: float = 1.0, to: int = 0, of: int = 0, fit: str = "") -> Trace:
    """The same program with another number of samples in each batch.

    factor  how many times as many
    to      or: how many samples
    of      how many the recording has, where its meta does not say
    fit     further recordings of the program with other batches: "a.npz;b.npz"

    From one recording: what is made of an input grows with it, parameters, their gradients, optimizer state and workspaces do
    not.  That is exact where every sample costs the same.  With `fit`, every size and all work follow a line (or a parabola)
    through the recordings; the result's warnings state the error.
    """
    by = factor_of(trace, "batch", ("batch",), factor, to, of)
    return fitted(trace, "batch", by, fit) if fit else scaled(trace, "batch", by, square=False)
