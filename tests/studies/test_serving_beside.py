"""A second service on the same GPUs: words, memory, what both lose, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from command_line import gpusim

from gpusim.api.serving import serve
from gpusim.base.errors import GpusimError
from gpusim.engine.serving.devices import NEVER
from gpusim.machine import catalogue
from gpusim.programs.serving.requests import requests_of
from gpusim.studies.serving.beside import as_long_as, beside_of, shared_by
from gpusim.studies.serving.setup import ServiceSpec, prepare

DRAWN = "drawn(prompt=512, output=64, requests=60)"
OTHER = "llama-1b(memory=0.3, requests=drawn(prompt=256, output=32, requests=20), rate=8)"
WORDS: dict[str, Any] = {"memory": 0.6, "rate": 6.0}
CPU = 264_000 + 14_000  # ns of a vLLM step and of its request, for which a step on an idle engine waits


@pytest.mark.hand_worked
def test_two_steps_of_two_models_by_hand() -> None:
    """One prompt and one token each, at once: slices of 2,048 us, between them a switch and the state of 132 processors."""
    one = "drawn(prompt=1000, output=1, requests=1, spread=0)"
    words = {"memory": 0.6, "beside": f"llama-1b(memory=0.3, requests={one})"}
    service = prepare(ServiceSpec(model="llama-8b", machine="h100-sxm-80gb", **words))
    assert service.beside is not None
    long, short = (of.times.of([0], [1000]).ns + CPU for of in (service, service.beside[0]))  # type: ignore[union-attr]
    shared = shared_by("time_slices", [catalogue.load("h100-sxm-80gb")])
    fixed, state, turn = shared.tenancy.switch.fixed, shared.state[0], 2_048_000
    assert turn < short < 8 * turn and long > 9 * turn
    left, right, now = long, short, 0  # the first model's turn, the second's, by turns
    ends = [NEVER, NEVER]
    moved = [0, 0]
    while left or right:
        for k in (0, 1):
            rest = (left, right)[k]
            if not rest or (k == 1 and ends[0] < NEVER and not right):
                continue
            runs = min(turn, rest) if (left and right) else rest
            now += runs
            left, right = (left - runs, right) if k == 0 else (left, right - runs)
            moved[k] = 1
            if not (left, right)[k]:
                ends[k] = now
            other = 1 - k
            if (left, right)[other]:
                now += round(fixed + state * (bool((left, right)[k]) + moved[other]))
    found = serve("llama-8b", "h100-sxm-80gb", one, **words)
    assert found.beside is not None
    assert [int(found.served.last[0]), int(found.beside.served.last[0])] == ends


def test_both_are_slower_than_alone_and_faster_than_in_turns_of_whole_runs() -> None:
    alone = serve("llama-8b", "h100-sxm-80gb", DRAWN, **WORDS)
    for way in ("time_slices", "mps"):
        both = serve("llama-8b", "h100-sxm-80gb", DRAWN, beside=OTHER, tenancy=way, **WORDS)
        assert both.beside is not None and both.metrics()["finished"] == 60
        assert 1.05 < both.metrics()["tpot_mean_ns"] / alone.metrics()["tpot_mean_ns"] < 3
        assert both.metrics()["beside_tpot_p50_ns"] == both.beside.metrics()["tpot_p50_ns"]
        assert both.served.engines[0].blocks == alone.served.engines[0].blocks


def test_a_neighbour_without_requests_costs_nothing() -> None:
    """Its only request comes at once with the first of the other: later ones have the GPU for themselves."""
    alone = serve("llama-8b", "h100-sxm-80gb", DRAWN, **WORDS)
    quiet = "llama-1b(memory=0.3, requests=drawn(prompt=16, output=1, requests=1))"
    both = serve("llama-8b", "h100-sxm-80gb", DRAWN, beside=quiet, **WORDS)
    same = both.served.latency_ns() == alone.served.latency_ns()
    assert same[-20:].all() and both.metrics()["latency_p50_ns"] == pytest.approx(alone.metrics()["latency_p50_ns"], rel=0.02)


def test_the_neighbours_requests_last_as_long_as_the_others() -> None:
    mine, theirs = requests_of("drawn(requests=100)"), requests_of("drawn(requests=10)")
    mine.arrival[:] = 10**9 * np.arange(100)
    made = as_long_as(theirs, 2.0, mine)
    assert len(made.arrival) == 198 and made.arrival[-1] == pytest.approx(99e9, rel=0.2)
    assert as_long_as(theirs, 0.0, mine) is theirs


def test_prompts_and_tokens_may_have_neighbours() -> None:
    found = serve("llama-8b", "hgx-h100", DRAWN, prefill=3, beside=OTHER, **WORDS)
    assert found.beside is not None and found.beside.kinds() == [] and len(found.kinds()) == 2
    assert found.metrics()["finished"] == 60 and found.metrics()["handed_share"] == 1.0
    assert set(found.beside.served.engine.tolist()) <= set(range(8))


def test_the_largest_rate_beside_another_is_lower() -> None:
    words = {"slo": "ttft 500 ms, tpot 15 ms", "find": "rate", "memory": 0.5}
    rates = [serve("llama-8b", "h100-sxm-80gb", DRAWN, beside=beside, **words).metrics()["best_rate_per_s"]
             for beside in ("", OTHER)]  # fmt: skip
    assert rates[1] < rates[0]


def test_words() -> None:
    word = beside_of("llama-1b(memory=0.25, requests=drawn(prompt=9, output=3), rate=2, engine=vllm@0.11(watermark=0.1, a=2))")
    assert word is not None and (word.model, word.requests, word.rate) == ("llama-1b", "drawn(prompt=9, output=3)", 2.0)
    assert word.words == {"memory": 0.25, "engine": "vllm@0.11(watermark=0.1, a=2)"} and beside_of(" ") is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"beside": "llama-1b"}, "is no service beside another"),
        ({"beside": "llama-1b(requests=drawn)"}, "has no memory"),
        ({"beside": "llama-1b(memory=0.3)"}, "has no requests"),
        ({"beside": "llama-1b(memory=0.3, tensor=2, requests=drawn)"}, "has no 'tensor'"),
        ({"beside": "llama-1b(memory=much, requests=drawn)"}, "memory=much of a service beside another is no number"),
        ({"beside": "llama-1b(memory=0.5, requests=drawn)"}, "are more than there is"),
        ({"beside": "llama-9(memory=0.3, requests=drawn)"}, "llama-9"),
        ({"beside": OTHER, "tenancy": "mig(slice=3g.40gb)"}, "do not share GPUs by 'mig'"),
        ({"beside": OTHER, "tenancy": "mps(cap=40)"}, "a step fills all multiprocessors"),
        ({"beside": OTHER, "tenancy": "time_slices(slice=0 ms)"}, "a time slice of 0 ms"),
        ({"beside": OTHER, "offload": "stream(layers=4)"}, "are not modelled together"),
        ({"beside": OTHER, "at_once": 3, "rate": 0.0}, "clients that wait for their answers and a service beside"),
        ({"beside": OTHER, "log": True}, "a log and a service beside another"),
    ],
)
def test_what_cannot_be_side_by_side_is_told(words: dict[str, Any], told: str) -> None:
    with pytest.raises(GpusimError) as error:
        serve("llama-8b", "h100-sxm-80gb", DRAWN, **WORDS | words)
    assert told in f"{error.value}"


def test_the_verb() -> None:
    words = ("--model", "llama-8b", "--machine", "h100-sxm-80gb", "--requests", DRAWN, "--memory", "0.6", "--rate", "6")
    done = gpusim("serve", *words, "--beside", OTHER, "--tenancy", "mps")
    assert "Beside it llama-1b, room for" in done.stdout
