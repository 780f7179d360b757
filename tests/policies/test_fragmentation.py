"""What do the four fragmentations say of a heap whose numbers are known?"""

from __future__ import annotations

import pytest

from gpusim.policies.trials import fragmentation

pytestmark = pytest.mark.hand_worked


def test_a_heap_by_hand() -> None:
    """900 requested bytes in 1024 of blocks, 4096 held; of the 3072 free ones 2048 in one piece."""
    assert fragmentation.internal(900, 1024) == pytest.approx(124 / 1024)
    assert fragmentation.external(2048, 3072) == pytest.approx(1 / 3)
    assert fragmentation.utilisation(1024, 4096) == 0.25
    assert fragmentation.failure(3072, 3072) and not fragmentation.failure(3073, 3072)


def test_nothing_live_and_nothing_held() -> None:
    assert fragmentation.internal(0, 0) == 0.0
    assert fragmentation.external(0, 0) == 0.0
    assert fragmentation.utilisation(0, 0) == 1.0


def test_one_piece_is_not_fragmented_and_no_piece_is_all() -> None:
    assert fragmentation.external(512, 512) == 0.0
    assert fragmentation.external(0, 512) == 1.0
    assert fragmentation.external(1024, 512) == 0.0  # a block that reaches beyond what is held
