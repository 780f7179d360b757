"""Is what no run of a grid can do told once, at its place in the file?"""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(
    ("tenancy", "words"),
    [
        ("time_slices", "6:10: the contexts of 61 programs take 17 GiB, and 't4' has"),
        ("mps", "6:10: 61 programs are more than the 48 clients of an MPS server"),
    ],
)
def test_programs_are_not_more_than_a_gpu_has_room_for(tenancy: str, words: str) -> None:
    text = TEXT % "evict: lru" + f"beside: {' + '.join(['llama-1b-decode'] * 60)}\ntenancy: {tenancy}\n"
    with pytest.raises(ConfigError) as told:
        load.experiment(loads(text, "e.yaml"))
    assert str(told.value).startswith(f"e.yaml:{words}")


def test_a_users_policy_of_pages_is_known_where_unified_memory_names_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("from gpusim import policy\n@policy.evict\ndef mine(evictions):\n    return evictions\n")
    text = TEXT % "evict: lru" + "use: [mine.py]\nunified: [driver, driver(evict=mine)]\n"
    loaded = load.experiment(loads(text, str(tmp_path / "e.yaml")))
    assert [str(each) for each in loaded.experiment.unified] == ["driver", "driver(evict=mine)"]
