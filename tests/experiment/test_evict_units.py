"""Is a policy of chunks, named for tensors, told once, at its place in the file?"""

from __future__ import annotations

import pytest

from gpusim.base.errors import ConfigError
from gpusim.base.yaml.document import loads
from gpusim.experiment import load

TEXT = """question: "?"
trace: resnet50-train
profile: t4
policies: {%s}
"""


@pytest.mark.parametrize(
    ("policies", "words"),
    [
        ("evict: [lru, by_turn]", "4:25: policies.evict[1]: evict policy 'by_turn' reads 'turns', which tensors do not have"),
        ("prefetch: [forest]", "4:23: policies.prefetch[0]: prefetch policy 'forest' decides about the pages of a fault"),
    ],
)
def test_a_policy_of_chunks_is_none_of_tensors(policies: str, words: str) -> None:
    with pytest.raises(ConfigError) as told:
        load.experiment(loads(TEXT % policies, "e.yaml"))
    assert str(told.value).startswith(f"e.yaml:{words}") and "unified: driver(" in str(told.value)
