"""Are all policies found, listed without being imported, and named with their parameters?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpusim.base import calls
from gpusim.base.errors import PolicyError
from gpusim.policies import contract, facts, registry
from gpusim.policies.entry import KINDS

EVICT = ["arc", "belady", "clock", "cost_aware", "fifo", "largest", "lfu", "lru", "none", "random", "s3fifo", "sieve"]


def test_every_eviction_policy_is_found_and_says_what_it_is() -> None:
    entries = {e.name: e for e in registry.entries("evict")}
    assert sorted(set(entries) & set(EVICT)) == EVICT
    for name in EVICT:
        entry = entries[name]
        assert len(entry.summary) > 20 and entry.summary.endswith("."), name
        assert entry.oracle == (name == "belady")
        assert entry.source or name in ("none", "largest"), name
    assert dict(entries["s3fifo"].parameters) == {"small": 0.1, "ghost": 0.9, "promote": 2}
    assert entries["cost_aware"].facts == ("size", "reload_ns", "evict_ns", "last_use", "now")


def test_what_is_read_is_what_is_imported() -> None:
    """The listing reads the files; the decorator sees the function.  Both must say the same."""
    from gpusim.policies.decorators import MARK
    from gpusim.policies.evict.cost_aware import cost_aware

    read, imported = registry.find("evict", "cost_aware"), getattr(cost_aware, MARK)
    for field in ("name", "kind", "help", "parameters", "knows", "source", "facts", "builtin"):
        assert getattr(read, field) == getattr(imported, field), field


@pytest.mark.slow
def test_listing_imports_no_policy_and_not_numba() -> None:
    script = """
import sys
from gpusim import policy
from gpusim.policies import registry
for kind in ("place", "evict", "prefetch", "defrag", "release", "plan"):
    for entry in registry.entries(kind):
        registry.bind(entry, {})
print([m for m in sys.modules if m == "numba" or m.startswith("gpusim.policies.evict.")])
"""
    root = str(Path(__file__).parents[2])
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_facts_are_those_of_the_contract() -> None:
    assert facts.facts() == {**contract.FACTS, **contract.CHUNK_FACTS}
    assert facts.future_facts() == set(contract.FUTURE_FACTS)


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("lru", "lru", {}),
        ("next_k(k=4)", "next_k", {"k": 4}),
        (" s3fifo( small=0.2 , promote = 1 ) ", "s3fifo", {"small": 0.2, "promote": 1}),
        ("lru()", "lru", {}),
    ],
)
def test_a_policy_is_named_with_its_parameters(text: str, name: str, values: dict[str, float]) -> None:
    assert calls.parse(text) == (name, values)


def test_parameters_come_in_their_order_with_defaults_for_the_rest() -> None:
    chosen = registry.get("evict", "s3fifo(promote=1)")
    assert chosen.params.tolist() == [0.1, 0.9, 1.0]
    assert chosen.spec == "s3fifo(promote=1)"
    assert registry.get("evict", "s3fifo(promote=2)").spec == "s3fifo"
    by_object = registry.get("evict", SimpleNamespace(name="s3fifo", params={"small": 0.25}))
    by_mapping = registry.get("evict", {"name": "s3fifo", "params": {"small": 0.25}})
    assert by_object.params.tolist() == by_mapping.params.tolist() == [0.25, 0.9, 2.0]


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("evict", "lruu", r"there is no evict policy 'lruu' \(did you mean 'lru'\?\)"),
        ("evict", "s3fifo(smal=0.1)", r"no parameter 'smal' \(did you mean 'small'\?\)"),
        ("evict", "lru(k=1)", "'lru' has no parameters"),
        ("evict", "s3fifo(small=big)", "'small' of policy 's3fifo' is 'big', not a number"),
        ("evict", "s3fifo(promote=1.5)", "'promote' of policy 's3fifo' is 1.5, not a whole number"),
        ("evict", "s3fifo(small=nan)", "is nan, not a number"),
        ("evict", "s3fifo(0.1)", "'0.1' in .* is not a parameter"),
        ("evict", "s3fifo(small=0.1", r"in 's3fifo\(small=0.1' a parenthesis is not closed"),
        ("evict", "s3fifo)", r"in 's3fifo\)' a parenthesis is closed that was not opened"),
        ("prefetch", "lru", "'lru' is a policy of kind evict"),
        ("evictt", "lru", r"no policy kind 'evictt' \(did you mean 'evict'\?\)"),
    ],
)
def test_wrong_names_are_answered_with_what_was_meant(kind: str, text: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        registry.get(kind, text)


def test_every_kind_has_its_folder() -> None:
    kinds = ("place", "evict", "prefetch", "defrag", "release", "pool", "plan", "placement", "schedule", "checkpoint", "jobs",
             "tenants", "migrate")  # fmt: skip
    assert kinds == KINDS
    assert registry.find("prefetch", "none").kind == "prefetch"


@pytest.mark.parametrize(
    "kind, text", [("defrag", "slide(threshold=7)"), ("defrag", "remap(before_oom=2)"), ("place", "cuda_async(remap=7)")]
)
def test_what_is_yes_or_no_or_a_share_is_at_most_one(kind: str, text: str) -> None:
    with pytest.raises(PolicyError, match="is above 1"):
        registry.get(kind, text)
    registry.get(kind, text.replace("7", "1").replace("2", "1"))


def test_a_release_that_a_number_cannot_tell_is_asked_for_in_quotes() -> None:
    """YAML and the command line read 2.20 as the number 2.2."""
    with pytest.raises(PolicyError, match=r"2\.2, which may have been written 2\.20"):
        registry.get("place", {"name": "pytorch", "params": {"release": 2.20}})
    with pytest.raises(PolicyError, match="may have been"):
        registry.get("place", "pytorch(release=2.20)")
    assert registry.get("place", {"name": "pytorch", "params": {"release": 2.13}}).values["release"] == "2.13"
    assert registry.get("place", 'pytorch(release="2.20")').values["release"] == "2.20"
