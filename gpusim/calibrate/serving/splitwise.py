"""Published runs of SplitwiseSim, request by request: queued, first token, last token, and which machine did what.

A run is out~STATE~TRACE~A100_H100~MODEL~SCHEDULER~0.csv, with ~request_nodes.csv and ~config.yaml beside it, in a folder with
the traces and perf_model.csv.  What its configuration does not say is below.

Source: Mutinifni/splitwise-sim @8f99e7dc (MIT), configs.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.base.yaml import document
from gpusim.engine.serving.pool import MixedPool
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tabled import TabledCost
from gpusim.engine.serving.tiering import CopyWay
from gpusim.machine.serving.given import given_step_times
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.results.served import Served

MEMORY = 8 * 85_899_345_920  # bytes of a machine
WEIGHTS = 329_000_000_000    # of bloom-176b, and of a token's keys and values
TOKEN = 2 * 14_336 * 70 * 2
RATE = 200 * 1024**3 / 1e9   # bytes/ns between machines
LONGEST = 1 << 20            # tokens of a sequence: it knows no bound

ROLES = {"baseline": "whole", "prompt": "prefill", "token": "decode"}
COLUMNS = {"queued": "queue_times", "first token": "ttft_times", "last token": "response_times"}
HEAD = "| run | requests | handed over | preempted | queued | first token | last token | on another machine |"


@dataclass(frozen=True)
class SplitwiseRun:
    """A run as it was published; times in s, by the number of the request.

    machines  (GPU, role) of each, in order
    times     by column of COLUMNS
    did       (requests, 2) the machines of prompt and tokens
    """

    name: str
    requests: RequestTable
    limits: EngineLimits
    max_preemptions: int
    machines: tuple[tuple[str, str], ...]
    times: dict[str, npt.NDArray[np.float64]]
    did: npt.NDArray[np.int64]


@dataclass(frozen=True)
class SplitwiseAgain:
    """The same run here; largest differences in s by column, and how many prompts or tokens another machine had."""

    published: SplitwiseRun
    served: Served
    differences: dict[str, float]
    elsewhere: int
    handed: int

    def row(self) -> str:
        """Of a table under HEAD."""
        times = " | ".join(f"{self.differences[name] * 1e9:.1f} ns" for name in COLUMNS)
        count, preempted = len(self.served.arrival), int(self.served.preemptions.sum())
        return f"| {self.published.name} | {count} | {self.handed} | {preempted:,} | {times} | {self.elsewhere} |"


def runs(folder: Path) -> list[str]:
    """What all file names of each run begin with.  Raises GpusimError where there is none."""
    suffix = "0.csv"
    found = sorted(path.name[: -len(suffix)] for path in folder.glob("out~*~" + suffix))
    if not found:
        wanted = "files out~STATE~TRACE~A100_H100~MODEL~SCHEDULER~0.csv"
        raise GpusimError(f"'{folder}' has no runs of SplitwiseSim", hint=wanted)
    return found


def read(folder: Path, run: str) -> SplitwiseRun:
    """One run of `runs`."""
    _, state, trace, counts, *_ = run.split("~")
    config: dict[str, Any] = document.read(folder / f"{run}config.yaml").data
    start, skus = config["start_state"], [(row["sku"], int(row["count"])) for row in config["cluster"]["servers"]]
    gpus = [sku.removeprefix("dgx-") for sku, count in skus for _ in range(count)]
    if state == "baseline":
        kinds, instance = ["baseline"] * len(gpus), start["instance"]
    elif start["split_type"] == "homogeneous":
        first, instance = int(start["prompt"]["num_instances"]), start["prompt"]
        kinds = ["prompt" if i < first else "token" for i in range(len(gpus))]
    else:
        names, instance = start["prompt"]["instance_names"], start["prompt"]
        kinds = ["prompt" if f"dgx-{gpu}" in names else "token" for gpu in gpus]
    rows = _rows(folder / f"{trace}.csv")
    requests = request_table(
        [round(float(row["arrival_timestamp"]) * 1e9) for row in rows], [int(row["prompt_size"]) for row in rows],
        [int(row["token_size"]) for row in rows],
    )  # fmt: skip
    outputs, machines = _rows(folder / f"{run}0.csv"), {f"{gpu}-80gb_{i}": i for i, gpu in enumerate(gpus)}
    order = np.argsort([float(row["request_ids"]) for row in outputs])
    times = {name: np.array([float(row[column]) for row in outputs])[order] for name, column in COLUMNS.items()}
    did = np.full((len(rows), 2), -1)
    for node in _rows(folder / f"{run}request_nodes.csv"):
        if node["node_type"] in ("PROMPT", "TOKEN"):
            did[int(float(node["request_id"])), int(node["node_type"] == "TOKEN")] = machines[node["runner"]]
    limits = EngineLimits(
        (MEMORY - WEIGHTS) // TOKEN, 1, int(instance["max_batch_size"]), int(instance["max_batch_tokens"]), LONGEST
    )
    named = f"{state} {trace} {counts}"
    roles = tuple((gpu, ROLES[kind]) for gpu, kind in zip(gpus, kinds, strict=True))
    return SplitwiseRun(named, requests, limits, int(instance["max_preemptions"]), roles, times, did)


def repeated(folder: Path, published: SplitwiseRun) -> SplitwiseAgain:
    """The run, made here."""
    of, requests = published, published.requests
    policy = get("schedule", f"splitwise(max_preemptions={of.max_preemptions})")
    engines = [
        Engine(f"{gpu} {i}", policy.start(requests, of.limits), _cost(folder, gpu), role=role)
        for i, (gpu, role) in enumerate(of.machines)
    ]
    pairs = [(a, b) for a in range(len(engines)) for b in range(len(engines)) if a != b]
    pooled = any(role != "whole" for _, role in of.machines)
    pool = MixedPool(float(TOKEN), {pair: CopyWay(0, RATE, ()) for pair in pairs}) if pooled else None
    run = ServiceRun(requests, engines, routing="mixed_pool" if pooled else "least_tokens", pool=pool)
    run.advance()
    served, before = run.result(), run.tables.outcome["prefilled"]
    ours = {"queued": served.queued_ns(), "first token": served.ttft_ns(), "last token": served.latency_ns()}
    differences = {name: float(np.abs(ours[name] / 1e9 - of.times[name]).max()) for name in COLUMNS}
    did = np.stack([np.where(before >= 0, before, served.engine), served.engine], axis=1)
    return SplitwiseAgain(of, served, differences, int((did != of.did).sum()), int((before >= 0).sum()))


def table(folder: Path) -> str:
    """All runs of the folder, as Markdown."""
    rows = [repeated(folder, read(folder, run)).row() for run in runs(folder)]
    return "\n".join([HEAD, "| --- |" + " ---: |" * 7, *rows])


def _cost(folder: Path, gpu: str) -> TabledCost:
    chosen = f"model=bloom-176b, hardware={gpu}-80gb, tensor_parallel=8"
    return TabledCost(given_step_times(f"{folder / 'perf_model.csv'}({chosen})"))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
