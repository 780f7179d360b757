"""A service's metrics over time as OpenMetrics text, under the names, labels and buckets that vLLM's server has, so that its
dashboards show a simulated engine.

Source of the names: vLLM 0.33.0, v1/metrics/{loggers,buckets}.py (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.results.served import NEVER, Served
from gpusim.show.monitoring.openmetrics import END

F64 = npt.NDArray[np.float64]
MOST = 100_000  # samples

_LATENCY = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0,
    7680.0,
)  # fmt: skip
_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0,
    2560.0,
)  # fmt: skip
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)


@dataclass(frozen=True)
class RequestTimes:
    """A histogram: what is measured of each request, s, and when it is known, ns."""

    name: str
    meaning: str
    buckets: tuple[float, ...]
    seconds: F64
    known: Any


def text(served: Served, model: str, step: float = 1.0) -> Iterator[str]:
    """Pieces of the text: samples every `step` simulated seconds from 0 on, whose times are simulated seconds.

    Raises GpusimError where these are too many.
    """
    count = int(served.makespan_ns / 1e9 / step) + 2
    if count > MOST:
        raise GpusimError(f"{count:,} samples are too many", hint=f"at most {MOST:,}: raise the step of {step:g} s")
    at: F64 = np.arange(count, dtype=np.float64) * step
    engines = range(len(served.engines))
    labels = [f'model_name="{model}",engine="{e}"' for e in engines]
    for name, kind, meaning, values in _over_time(served, at):
        yield f"# TYPE vllm:{name} {kind}\n# HELP vllm:{name} {meaning}\n"
        suffix = "_total" if kind == "counter" else ""
        for e in engines:
            yield "".join(f"vllm:{name}{suffix}{{{labels[e]}}} {v:.10g} {t:.10g}\n" for v, t in zip(values[e], at, strict=True))
    for times in _of_requests(served):
        name = f"vllm:{times.name}"
        yield f"# TYPE {name} histogram\n# UNIT {name} seconds\n# HELP {name} {times.meaning}\n"
        for e in engines:
            yield _histogram(times, served.engine == e, labels[e], at)
    yield END


def _over_time(served: Served, at: F64) -> Iterator[tuple[str, str, str, F64]]:
    """Gauges and counters: (name, kind, meaning, (engines, samples))."""
    samples, width = served.samples, float(served.samples["width_ns"]) / 1e9
    rows = samples["running"].shape[1]
    row = np.clip((at / width).astype(int), 0, max(rows - 1, 0))
    over = (at * 1e9 > served.makespan_ns) | (rows == 0)
    gauges = (
        ("num_requests_running", "Requests in steps.", samples["running"]),
        ("num_requests_waiting", "Requests that wait.", samples["waiting"]),
        ("kv_cache_usage_perc", "Share of the KV blocks in use, 1 is all.", served.kv_share()),
    )
    for name, meaning, values in gauges:
        yield name, "gauge", meaning, np.where(over, 0.0, values[:, row] if rows else 0.0)
    counters = (
        ("prompt_tokens", "Tokens of prompts computed.", samples["prompt_tokens"]),
        ("generation_tokens", "Tokens of outputs made.", samples["output_tokens"]),
        ("num_preemptions", "Requests preempted.", samples["preemptions"]),
    )
    for name, meaning, values in counters:
        sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values, axis=1)], axis=1)
        yield name, "counter", meaning, sums[:, np.clip(np.ceil(at / width).astype(int), 0, rows)]
    ended = np.where(served.finished, served.ended, NEVER)
    done = [np.searchsorted(np.sort(ended[served.engine == e]), at * 1e9, side="right") for e in range(len(served.engines))]
    yield "request_success", "counter", "Requests that have all their tokens.", np.array(done, float)


def _of_requests(served: Served) -> Iterator[RequestTimes]:
    first, ended = served.first, np.where(served.finished, served.ended, NEVER)
    yield RequestTimes("time_to_first_token_seconds", "From arrival to first token.", _FIRST, served.ttft_ns() / 1e9, first)
    yield RequestTimes(
        "request_time_per_output_token_seconds", "Of each token after the first, a mean over the request.", _BETWEEN,
        served.tpot_ns() / 1e9, ended,
    )  # fmt: skip
    yield RequestTimes("e2e_request_latency_seconds", "From arrival to last token.", _LATENCY, served.latency_ns() / 1e9, ended)
    queued = served.queued_ns() / 1e9
    yield RequestTimes("request_queue_time_seconds", "Before the first step.", _LATENCY, queued, served.admitted)


def _histogram(times: RequestTimes, own: Any, label: str, at: F64) -> str:
    """The cumulative counts of one engine's requests at each sample."""
    here = own & ~np.isnan(times.seconds) & (times.known < NEVER)
    order = np.argsort(times.known[here], kind="stable")
    seconds, known = times.seconds[here][order], times.known[here][order]
    upto = np.searchsorted(known, at * 1e9, side="right")
    lines = []
    for bound in (*times.buckets, np.inf):
        below = np.concatenate([[0], np.cumsum(seconds <= bound)])[upto]
        le = "+Inf" if bound == np.inf else f"{bound:g}"
        series = f'vllm:{times.name}_bucket{{{label},le="{le}"}}'
        lines += [f"{series} {n} {t:.10g}\n" for n, t in zip(below, at, strict=True)]
    sums = np.concatenate([[0.0], np.cumsum(seconds)])[upto]
    lines += [f"vllm:{times.name}_sum{{{label}}} {v:.10g} {t:.10g}\n" for v, t in zip(sums, at, strict=True)]
    lines += [f"vllm:{times.name}_count{{{label}}} {n} {t:.10g}\n" for n, t in zip(upto, at, strict=True)]
    return "".join(lines)
