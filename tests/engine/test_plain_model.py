"""Does a plain SimPy model of the same physics, which shares nothing with the engine, give the same times, to the tick?

`python tests/support/plain_comparison.py 0 1000` compares a thousand programs.
"""

from __future__ import annotations

import pytest
from plain_comparison import difference

pytestmark = pytest.mark.oracle


@pytest.mark.slow
@pytest.mark.parametrize("share", ["none", "sms, memory, engines"])
def test_random_programs_agree_with_the_plain_model(share: str) -> None:
    found = [text for seed in (*range(80), 1204, 1495) if (text := difference(seed, share)) is not None]
    assert len(found) > 50
    assert [text for text in found if text] == []
