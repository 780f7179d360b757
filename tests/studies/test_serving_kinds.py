"""Services on GPUs of two kinds: each replica has steps, blocks and ways of its own kind, and a GPU hour its own price."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.api.serving import serve
from gpusim.base.errors import ConfigError, GpusimError
from gpusim.machine.topology import build, routes, transfers
from gpusim.studies.serving.questions import read
from gpusim.studies.serving.setup import PreparedService, ServiceSpec, prepare
from gpusim.studies.serving.ways import group_way, groups_of, way

BOTH = "hgx-h100 + dgx-a100"
ONE = "drawn(prompt=4000, output=3, requests=1, spread=0)"
STEP = ([0, 900], [700, 1])
TOKEN = 131_072  # bytes of keys and values of Llama 8B


def prepared(machine: str, **words: Any) -> PreparedService:
    return prepare(ServiceSpec(model="llama-8b", machine=machine, **words))


@pytest.mark.agreement
@pytest.mark.parametrize("tensor", [1, 4])
def test_replicas_of_each_kind_are_those_of_their_own_machine(tensor: int) -> None:
    both = prepared(BOTH, tensor=tensor)
    for machine, replica in (("hgx-h100", 0), ("dgx-a100", len(both.groups) - 1)):
        alone = prepared(machine, tensor=tensor)
        kind = both.kind(replica)
        assert kind.times.of(*STEP) == alone.times.of(*STEP) and kind.blocks == alone.blocks  # type: ignore[union-attr]
        for bound in ("slow", "fast"):
            assert both.paced(bound).kind(replica).times.of(*STEP) == alone.paced(bound).times.of(*STEP)  # type: ignore[union-attr]
    assert both.kind(0).times.of(*STEP).ns < both.kind(len(both.groups) - 1).times.of(*STEP).ns  # type: ignore[union-attr]


@pytest.mark.hand_worked
@pytest.mark.parametrize(
    ("network", "latency", "rate"),
    [("infiniband", 1830, 23.85), ("roce", 3960, 23.85)],
)
def test_keys_and_values_cross_the_network_by_rdma(network: str, latency: int, rate: float) -> None:
    """The prompt's step on an H100, 4,000 tokens over the A100's HDR card, the last token's step on the A100."""
    served = serve("llama-8b", f"{BOTH} over {network}", ONE, prefill=8).served
    service = prepared(BOTH, prefill=8)
    assert (served.engine[0], served.handed[0]) == (8, 4000)
    assert served.waited[0] == pytest.approx(latency + 4000 * TOKEN / rate, abs=1)
    steps = [service.kind(i).times.of([before], [n]).ns for i, before, n in ((0, 0, 4000), (8, 3999, 1))]  # type: ignore[union-attr]
    assert served.ttft_ns()[0] == sum(steps) + served.waited[0]


@pytest.mark.hand_worked
def test_over_tcp_they_pass_the_memory_of_both_hosts() -> None:
    """As long as a staged copy alone takes: its first chunk to the host, both ways at once, its last chunk from there."""
    machine = build.load(f"{BOTH} over tcp")
    served = serve("llama-8b", f"{BOTH} over tcp", ONE, prefill=8).served
    alone = transfers.time_alone(machine, routes.between(machine, "n0.gpu0", "n1.gpu0"), 4000 * TOKEN)
    assert served.waited[0] == pytest.approx(alone, abs=1)
    assert alone > (4000 * TOKEN - (2 << 20)) / 1.5


@pytest.mark.hand_worked
def test_pairs_that_share_a_link_have_parts_of_it() -> None:
    """On a DGX-1 GPUs 0 and 1 are below one switch with a card between them; on an HGX H100 each has its own."""
    two = build.load("2 x dgx-1-v100")
    assert routes.card(two, "n0.gpu0") == routes.card(two, "n0.gpu1")
    one, pair = way(two, "n0.gpu0", "n1.gpu0"), group_way(two, ("n0.gpu0", "n0.gpu1"), ("n1.gpu0", "n1.gpu1"))
    card = "n0.nic0>network"
    assert (one.links.count(card), pair.links.count(card)) == (1, 2) and pair.links.count("n0.gpu0>n0.switch0") <= 1
    own = build.load("2 x hgx-h100")
    pairs = (("n0.gpu0", "n0.gpu1"), ("n1.gpu0", "n1.gpu1"))
    assert sorted(group_way(own, *pairs).links) == sorted(way(own, "n0.gpu0", "n1.gpu0").links)


def test_no_replica_is_over_gpus_of_two_kinds() -> None:
    machine = build.load(BOTH)
    for tensor in (1, 2, 8):
        for group in groups_of(machine, tensor):
            assert len({machine.profile(gpu).name for gpu in group}) == 1
    assert [len(groups_of(machine, n)) for n in (1, 3, 8, 16)] == [16, 4, 2, 0]


def test_the_first_machine_computes_the_prompts() -> None:
    drawn = "drawn(prompt=1000, output=50, requests=100)"
    found = serve("llama-8b", BOTH, drawn, rate=10.0, prefill=8, price="h100=2.5, a100=1.2")
    kinds = {row["computes"]: row for row in found.kinds()}
    assert [kinds["prompts"]["GPU"], kinds["tokens"]["GPU"]] == ["h100-sxm-80gb", "a100-sxm4-80gb"]
    assert kinds["prompts"]["output [tokens/s]"] == 0 and (found.served.engine >= 8).all()
    tokens = found.metrics()["output_tokens_per_s"] * 3600
    assert found.metrics()["cost_per_million_tokens"] == pytest.approx(8 * (2.5 + 1.2) / tokens * 1e6)
    assert found.values()["kinds"] == found.kinds()
    alike = serve("llama-8b", "hgx-h100", drawn, rate=10.0, price="h100=2.5, a100=1.2")
    tokens = alike.metrics()["output_tokens_per_s"] * 3600
    assert alike.kinds() == [] and alike.metrics()["cost_per_million_tokens"] == pytest.approx(20 / tokens * 1e6)


def test_tiers_lie_below_the_replicas_that_compute_prompts() -> None:
    words = {"prefill": 4, "tiers": "host(64 GiB)", "memory": 0.3}
    found = serve("llama-8b", BOTH, "chats(users=300, turns=6, prompt=800, seconds=120, think=20)", **words)
    numbers = found.metrics()
    assert len(found.tiers) == 4 and numbers["tier_share"] > 0.05 and 0.5 < numbers["handed_share"] <= 1.0
    assert numbers["finished"] == numbers["requests"] and (found.served.sent_for <= found.served.prompt).all()


def test_a_network_that_is_too_slow_is_what_limits() -> None:
    found = serve("llama-8b", f"{BOTH} over tcp", "drawn(prompt=2048, output=64, requests=200)", rate=40.0, prefill=8)
    assert found.limit.startswith("copies of keys and values: requests wait")
    prompts = serve("llama-8b", BOTH, "drawn(prompt=4096, output=16, requests=300)", rate=200.0, prefill=1)
    assert prompts.limit.startswith("compute of the replicas for prompts")
    assert np.nanmean(found.served.waited) > np.nanmean(prompts.served.waited)


def test_a_price_of_a_question_is_a_number_words_or_a_mapping(tmp_path: Path) -> None:
    text = "question: q\nservice: {model: llama-8b, machine: l40s}\nrequests: drawn(requests=5)\nprice: "
    for said, wanted in (("2.5", 2.5), ("h100=2, l40s=1", "h100=2, l40s=1"), ("{h100: 2, l40s: 1.5}", "h100=2, l40s=1.5")):
        (tmp_path / "q.yaml").write_text(f"{text}{said}\n")
        assert read(tmp_path / "q.yaml").price == wanted
    for said in ("cheap", "[1, 2]", "{h100: cheap}", "-2"):
        (tmp_path / "q.yaml").write_text(f"{text}{said}\n")
        with pytest.raises(ConfigError, match=r":4:8: .*is no price of a GPU hour"):
            read(tmp_path / "q.yaml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"tensor": 16}, "GPUs of several kinds, and a replica has one kind"),
        ({"step_times": "steps.csv"}, "given step times are of one kind of GPU"),
        ({"offload": "stream(layers=4)"}, "weights below the GPU are modelled of one kind of GPU"),
        ({"price": "h100=2"}, "'a100-sxm4-80gb' has no price"),
        ({"price": "h100=2, h100-sxm=3, a100=1"}, "'h100-sxm-80gb' has two prices"),
        ({"price": "h101=2, a100=1"}, "no GPU's name begins with 'h101'"),
        ({"price": "2, a100=1"}, "a price is for all GPUs or for those of one name"),
        ({"price": "a100=cheap"}, "is no price of a GPU hour"),
        ({"price": -1.0}, "is no price of a GPU hour"),
    ],
)
def test_what_two_kinds_cannot_have_is_told(words: dict[str, Any], told: str) -> None:
    with pytest.raises(GpusimError, match=told):
        serve("llama-8b", BOTH, "drawn(prompt=512, output=3, requests=5)", **words)
