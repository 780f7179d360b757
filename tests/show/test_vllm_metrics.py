"""Metrics of a service under vLLM's names: equal to what was served, and text that Prometheus takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_tools import needs_promtool, promtool

from gpusim.api.serving import serve
from gpusim.base.errors import GpusimError
from gpusim.results.served import Served
from gpusim.show.monitoring.vllm_metrics import text


def served() -> Served:
    return serve("llama-8b", "2 x l40s", "drawn(prompt=500, output=50, requests=80)", rate=6.0).served


def last(whole: str, series: str) -> list[float]:
    """The last value of each engine's series that begins so."""
    found: dict[str, float] = {}
    for line in whole.splitlines():
        if line.startswith(series):
            name, value, _ = line.rsplit(" ", 2)
            found[name] = float(value)
    return list(found.values())


def test_what_is_counted_at_the_end_is_what_was_served() -> None:
    found = served()
    whole = "".join(text(found, "llama-8b"))
    assert sum(last(whole, "vllm:request_success_total")) == 80
    assert sum(last(whole, "vllm:generation_tokens_total")) == found.made.sum()
    assert sum(last(whole, "vllm:prompt_tokens_total")) == found.prompt.sum()
    assert sum(last(whole, "vllm:time_to_first_token_seconds_count")) == 80
    assert sum(last(whole, "vllm:e2e_request_latency_seconds_sum")) == pytest.approx(found.latency_ns().sum() / 1e9)
    assert sum(last(whole, 'vllm:e2e_request_latency_seconds_bucket{model_name="llama-8b",engine="0",le="+Inf"')) == (
        found.engine == 0
    ).sum()
    assert last(whole, "vllm:num_requests_running") == [0, 0] and whole.endswith("# EOF\n")


def test_buckets_are_cumulative() -> None:
    found = served()
    whole = "".join(text(found, "llama-8b"))
    counts = last(whole, 'vllm:time_to_first_token_seconds_bucket{model_name="llama-8b",engine="1"')
    assert counts == sorted(counts) and counts[-1] == (found.engine == 1).sum()
    within = ((found.ttft_ns() <= 0.1e9) & (found.engine == 1)).sum()
    (tenth,) = last(whole, 'vllm:time_to_first_token_seconds_bucket{model_name="llama-8b",engine="1",le="0.1"')
    assert tenth == within


def test_too_many_samples_are_refused() -> None:
    with pytest.raises(GpusimError, match="samples are too many"):
        "".join(text(served(), "llama-8b", step=1e-5))


@needs_promtool
def test_prometheus_takes_the_text(tmp_path: Path) -> None:
    path = tmp_path / "metrics.om"
    path.write_text("".join(text(served(), "llama-8b")))
    assert "204" in promtool("tsdb", "create-blocks-from", "openmetrics", path, tmp_path / "tsdb")
