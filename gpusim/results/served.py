"""What became of the requests of a service: times of each, and the numbers by which services are compared.

Words as vLLM and the MLPerf inference rules have them:

    TTFT     time to first token: from the arrival to the first token of the output
    TPOT     time per output token after the first, a mean over the request; NaN for an output of one token
    ITL      inter-token latency: the time between two tokens, of all requests together
    latency  from the arrival to the last token
    goodput  requests a second that meet the objectives (SLO), both of TTFT and of TPOT
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
NEVER = 2**62
SECOND = 1e9


@dataclass(frozen=True)
class Objective:
    """What a request has to keep, ns; infinite: whatever it takes."""

    ttft_ns: float = float("inf")
    tpot_ns: float = float("inf")


@dataclass(frozen=True)
class EngineAccount:
    """What one engine did."""

    name: str
    blocks: int
    steps: int
    busy_ns: int
    prompt_tokens: int
    output_tokens: int
    preemptions: int
    looked_up_tokens: int
    found_tokens: int
    slowed_ns: int = 0  # of busy_ns: what steps took longer because of copies


@dataclass(frozen=True)
class Served:
    """n requests in the order of their arrival; int64[n], times in ns, NEVER where something did not happen."""

    arrival: I64
    prompt: I64
    output: I64
    engine: I64
    admitted: I64
    first: I64
    last: I64
    ended: I64
    made: I64  # tokens of the output
    cached: I64  # tokens of the prompt that were found when it was admitted, -1: it never was
    preemptions: I64
    sent_for: I64  # tokens that came from tiers below the device
    handed: I64  # tokens that came from the engine that computed the prompt
    waited: I64  # ns in which it waited for such tokens
    refused: I64  # why it was not taken, 0: it was
    reasons: tuple[str, ...]  # texts of `refused`
    gaps: I64  # int64[classes]: how many times between tokens fall into each
    gap_ns: F64  # float64[classes + 1]: bounds of the classes
    engines: tuple[EngineAccount, ...]
    samples: dict[str, Any]  # float64[engines, rows] each; `width_ns`
    makespan_ns: int

    @property
    def finished(self) -> npt.NDArray[np.bool_]:
        """bool[n]: the request has all its tokens."""
        done: npt.NDArray[np.bool_] = (self.refused == 0) & (self.made >= self.output)
        return done

    def ttft_ns(self) -> F64:
        """float64[n]: NaN without a first token."""
        return np.where(self.made > 0, self.first - self.arrival, np.nan)

    def tpot_ns(self) -> F64:
        """float64[n]: NaN with fewer than two tokens."""
        between = np.maximum(self.made - 1, 1)
        return np.where(self.made > 1, (self.last - self.first) / between, np.nan)

    def latency_ns(self) -> F64:
        """float64[n]: NaN where the request did not finish."""
        return np.where(self.finished, self.last - self.arrival, np.nan)

    def queued_ns(self) -> F64:
        """float64[n]: from the arrival until the engine composes the first step that has some of it; NaN without one."""
        return np.where(self.admitted < NEVER, self.admitted - self.arrival, np.nan)

    def meets(self, slo: Objective) -> npt.NDArray[np.bool_]:
        """bool[n]: the request finished within the objectives; one token has no TPOT to miss."""
        tpot = self.tpot_ns()
        kept: npt.NDArray[np.bool_] = self.finished & (self.ttft_ns() <= slo.ttft_ns) & (np.isnan(tpot) | (tpot <= slo.tpot_ns))
        return kept

    def gap_quantile_ns(self, share: float) -> float:
        """The time between two tokens that this share of them does not exceed, to about 1 %; NaN without any."""
        total = self.gaps.sum()
        if not total:
            return float("nan")
        at = int(np.searchsorted(np.cumsum(self.gaps), share * total))
        return float(np.sqrt(self.gap_ns[at] * self.gap_ns[at + 1]))

    def summary(self, slo: Objective | None = None) -> dict[str, float]:
        """The numbers by name; times end in `_ns`, rates in `_per_s`."""
        taken = self.refused == 0
        seconds = max(self.makespan_ns, 1) / SECOND
        found: dict[str, float] = {
            "requests": len(self.arrival), "finished": int(self.finished.sum()), "rejected": int((~taken).sum()),
            "makespan_ns": self.makespan_ns,
            "requests_per_s": float(self.finished.sum() / seconds),
            "output_tokens_per_s": float(self.made.sum() / seconds),
            "prompt_tokens_per_s": float(self.prompt[taken].sum() / seconds),
        }  # fmt: skip
        for name, values in (("ttft", self.ttft_ns()), ("tpot", self.tpot_ns()), ("latency", self.latency_ns()),
                             ("queued", self.queued_ns()), ("waited", self.waited[taken].astype(float))):  # fmt: skip
            found |= _distribution(name, values)
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            found[f"itl_{name}_ns"] = self.gap_quantile_ns(share)
        if slo is not None:
            kept = self.meets(slo)
            found["attainment"] = float(kept.mean()) if len(kept) else float("nan")
            found["goodput_per_s"] = float(kept.sum() / seconds)
        looked = sum(e.looked_up_tokens for e in self.engines)
        found["hit_share"] = sum(e.found_tokens for e in self.engines) / looked if looked else float("nan")
        asked = float(self.prompt[taken].sum())
        for name, tokens in (("tier", self.sent_for), ("handed", self.handed)):
            found[f"{name}_share"] = float(tokens.sum()) / asked if asked else float("nan")
        found["preemptions"] = sum(e.preemptions for e in self.engines)
        found["steps"] = sum(e.steps for e in self.engines)
        running = float(self.samples["running"].sum(axis=0).mean()) if self.samples["running"].size else 0.0
        found["running_mean"] = running / len(self.engines)
        found["busy_share"] = sum(e.busy_ns for e in self.engines) / max(self.makespan_ns, 1) / len(self.engines)
        busy = sum(e.busy_ns for e in self.engines)
        found["slowed_share"] = sum(e.slowed_ns for e in self.engines) / busy if busy else 0.0
        found["kv_peak_share"] = float(np.nanmax(self.kv_share())) if self.kv_share().size else float("nan")
        return found

    def kv_share(self) -> F64:
        """float64[engines, rows]: blocks in use over all, a mean over the time of each row of the samples."""
        blocks = np.array([[e.blocks] for e in self.engines], float)
        shares: F64 = self.samples["blocks"] / blocks
        return shares


def _distribution(name: str, values: F64) -> dict[str, float]:
    known = values[~np.isnan(values)]
    if not len(known):
        return {f"{name}_{which}_ns": float("nan") for which in ("mean", "p50", "p90", "p99")}
    quantiles = {f"p{q}": float(np.percentile(known, q)) for q in (50, 90, 99)}
    return {f"{name}_{which}_ns": value for which, value in {"mean": float(known.mean()), **quantiles}.items()}
