"""The driver's order, but pages that were not written since they came are not copied back: the host still has them."""

DROPS_CLEAN = True
