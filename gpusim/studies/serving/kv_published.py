"""Keys and values below the GPU as others published them: prefix caches, loads, tiers; what is said here, and what is not.

    load      bandwidth at which a prefix loads as fast as it is computed, by the paper's formula and by the modelled step
    infinite, share, most, nodes    what caches of given sizes find in a trace, as an independent count does
    rounds    conversations in rounds, on one GPU with a chain of tiers
Nothing is fitted.
"""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.engine.serving.hit_rates import hit_rate
from gpusim.machine.serving.build import step_times
from gpusim.machine.topology import build
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import request_table
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.serving.requests import FOLDER, file_of, requests_of
from gpusim.programs.zoo.served import served
from gpusim.results.served import Served
from gpusim.studies.serving.setup import ServiceSpec, prepare

DATA = Path(__file__).parents[2] / "calibrate" / "data" / "kv_published.csv"
TOKENS = 3_000_000  # of a node's cache
CLIENTS, ROUNDS, NEW, AT_ONCE = 20, 10, 4096, 4
CHAINS = {
    "gpu": "", "pool": "host(36.8 GB) > remote(80 GB, rdma)", "ssd": "host(36.8 GB) > remote(4 TB, rdma, rate=27 GB/s)",
}  # fmt: skip
"""Twice the GPU's room for keys and values; RDMA to a pool; SSDs that read 27 GB/s behind it, taken as one pool with it."""


class KvRow(NamedTuple):
    """A published number, what is said of it, and why that is not scored; NaN: nothing is said."""

    source: str
    metric: str
    value: float
    unit: str
    conditions: str
    said: float
    why: str


class Absent(GpusimError):
    """A trace that is not at hand."""


def rows() -> list[KvRow]:
    """All rows of the file with what is said of them."""
    with DATA.open(encoding="utf-8") as file:
        found = list(csv.DictReader(line for line in file if not line.startswith("#")))
    made = []
    for row in found:
        case, _, why = (part.strip() for part in row["case"].partition(":"))
        try:
            said = math.nan if case == "no" else _said(case.split())
        except Absent as error:
            said, why = math.nan, error.message
        made.append(KvRow(row["source"], row["metric"], float(row["value"]), row["unit"], row["conditions"], said, why))
    return made


def table() -> str:
    """As Markdown, and what the modelled steps make of the bandwidth."""
    lines = ["| source | what | conditions | published | said | error |", "| --- | --- | --- | ---: | ---: | --- |"]
    for row in rows():
        gap = "" if row.unit == "%" else " "
        error = f"{row.said - row.value:+.1f} points" if row.unit == "%" else f"{100 * (row.said / row.value - 1):+.0f} %"
        said = "" if math.isnan(row.said) else f"{row.said:.3g}"
        why = f"not scored: {row.why}" if row.why else error
        lines.append(f"| {row.source} | {row.metric} | {row.conditions} | {row.value:g}{gap}{row.unit} | {said} | {why} |")
    loads = {name: least_bandwidth(name) for name in ("dgx-a100", "hgx-h100")}
    said = " and ".join(f"{found.modelled:.2g} GB/s on {name} ({found.step_ns / 1e6:,.0f} ms)" for name, found in loads.items())
    pays = f"With modelled steps instead of the vendor's peak a prefix of 8,192 tokens pays from {said} on."
    return "\n".join([*lines, "", pays])


def _said(case: list[str]) -> float:
    what, *of = case
    if what == "load":
        return least_bandwidth(of[0]).by_formula
    if what == "rounds":
        return _of_rounds(of)
    requests = _trace(of[0])
    if what == "infinite":
        return 100 * found_tokens(requests)
    if what == "nodes":
        return _found(requests, 10 * TOKENS) / _in_turn(requests, 10)
    size = TOKENS if what == "share" else 50_000_000
    return 100 * _found(requests, size) / _found(requests, 10**9)


def _trace(name: str) -> RequestTable:
    word = f"mooncake_{name}_trace.jsonl.gz"
    if not file_of(word).is_file():
        raise Absent(f"{FOLDER} does not name the folder of {word}")
    return requests_of(word)


def _found(requests: RequestTable, tokens: int) -> float:
    """The share of blocks that LRU of so many tokens finds."""
    return hit_rate(requests, min(tokens // int(requests.piece[0]), requests.identity.size), get("evict", "lru")).share


def _in_turn(requests: RequestTable, nodes: int) -> float:
    """The share of blocks that so many caches find, each of which has every so manieth request."""
    found = chunks = 0
    for node in range(nodes):
        own = np.arange(node, len(requests.arrival), nodes)
        lengths = np.diff(requests.start)[own]
        start = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(requests.start[:-1][own], lengths) + np.arange(start[-1]) - np.repeat(start[:-1], lengths)
        part = request_table(
            requests.arrival[own], requests.prompt[own], requests.output[own], known=requests.known[own], start=start,
            identity=requests.identity[at], piece=int(requests.piece[0]),
        )  # fmt: skip
        rate = hit_rate(part, TOKENS // int(part.piece[0]), get("evict", "lru"))
        found, chunks = found + rate.found, chunks + rate.chunks
    return found / chunks


def found_tokens(requests: RequestTable) -> float:
    """The share of prompts' tokens that an infinite cache finds; a partial last block counts for what it has."""
    piece, seen, found = int(requests.piece[0]), set[int](), 0
    for r in range(len(requests.arrival)):
        own = requests.identity[requests.start[r] : requests.start[r + 1]]
        hits = 0
        while hits < len(own) and int(own[hits]) in seen:
            hits += 1
        found += min(hits * piece, int(requests.prompt[r]))
        seen.update(own.tolist())
    return found / float(requests.prompt.sum())


class LeastBandwidth(NamedTuple):
    """GB/s: by Eq. 2 with the vendor's peak and the paper's constants, and as the step is modelled; bytes of the prefix, ns."""

    by_formula: float
    modelled: float
    size: float
    step_ns: float


def least_bandwidth(machine: str, tokens: int = 8192) -> LeastBandwidth:
    """At which the keys and values of a prefix of Llama 70B come as fast as 8 GPUs compute them."""
    topology, model, ways = build.load(machine), served("llama-70b", "bf16", "bf16"), 8
    peak = 989e12 if "h100" in machine else 312e12
    d, a, b, shared = model.width, 4, 22, model.heads / model.kv_heads
    formula = ways * peak * 2 * d * 2 / (shared * (a * tokens * d + b * d * d))
    times = step_times(
        model, topology.profile(topology.gpus[0]), ways=ways, topology=topology, gpus=topology.gpus, most_tokens=tokens
    )
    step = times.of([0], [tokens]).ns
    size = float(model.token_bytes(1)) * tokens
    return LeastBandwidth(formula / 1e9, size / step, size, step)


def in_rounds() -> RequestTable:
    """Every client's prompt of a round is all that it had before and 4,096 tokens more; clients of a round in any order."""
    rng, piece = np.random.default_rng(0), 64
    clients = np.concatenate([rng.permutation(CLIENTS) for _ in range(ROUNDS)])
    prompt = np.repeat(np.arange(1, ROUNDS + 1) * NEW, CLIENTS)
    pieces = prompt // piece
    start = np.concatenate([[0], np.cumsum(pieces)])
    within = np.arange(start[-1]) - np.repeat(start[:-1], pieces)
    identity = np.repeat(clients, pieces) * (ROUNDS * NEW // piece) + within
    return request_table(np.zeros(len(clients), np.int64), prompt, 1, known=prompt, start=start, identity=identity, piece=piece)


@cache
def of_chain(name: str) -> Served:
    """The rounds on one A100 of 40 GB; 4 requests at once, without the pause between rounds."""
    spec = ServiceSpec(
        model="qwen3-8b", machine="dgx-a100-40gb", replicas=1, tiers=CHAINS[name], when="write_all", memory=0.88, block=64
    )
    run = prepare(spec).start(in_rounds(), at_once=AT_ONCE)
    run.advance()
    return run.result()


def _of_rounds(of: list[str]) -> float:
    name, what, *more = of
    served_ = of_chain(name)
    if what in CHAINS:
        other = of_chain(what)
        if more == ["ttft"]:
            return 100 * (float(np.nanmean(served_.ttft_ns())) / float(np.nanmean(other.ttft_ns())) - 1)
        return other.makespan_ns / served_.makespan_ns
    number = int(more[0])
    if what == "hits":
        return 100 * round_of(served_, number)[1]
    first = round_of(served_, number)[0]
    return round_of(served_, number + 1)[0] - first if what == "step" else first


def round_of(served_: Served, number: int) -> tuple[float, float]:
    """Of a round, from 1: seconds to the first token on average; the share of the prompts' tokens that were not computed."""
    own = slice((number - 1) * CLIENTS, number * CLIENTS)
    found = (served_.cached[own] + 0.0).sum() / served_.prompt[own].sum()
    return float(np.nanmean(served_.ttft_ns()[own])) / 1e9, float(found)


if __name__ == "__main__":
    print(table())
