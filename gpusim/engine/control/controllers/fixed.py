from gpusim.engine.control.controller import Controller


def fixed(batch: int = 0) -> Controller:
    """Always the same batch.

    batch  samples; 0: as recorded
    """
    while True:
        yield batch
