"""Memory of a service by owner, and the figure of `gpusim serve`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusim.api.serving import serve
from gpusim.show.serving import draw, save_answer
from gpusim.show.values.served_memory import capacity_of, engines_share, memory_by_owner

DRAWN = "drawn(prompt=1024, output=64, requests=60)"


def test_two_services_have_owners_of_their_own(tmp_path: Path) -> None:
    beside = "llama-1b(memory=0.3, requests=drawn(prompt=256, output=32, requests=20), rate=8)"
    found = serve("llama-8b", "h100-sxm-80gb", DRAWN, rate=6.0, memory=0.5, beside=beside)
    assert found.beside is not None
    owners, other = memory_by_owner(found), found.beside.service
    assert list(owners) == ["context", "weights", "keys and values", "weights of llama-1b", "keys and values of llama-1b"]
    profile = found.service.topology.profile("gpu0")
    assert int(owners["context"][1][0]) == 2 * round(profile.context.value)
    assert int(owners["weights of llama-1b"][1][0]) == other.model.weight_bytes(1)
    for one, name in ((found, "keys and values"), (found.beside, "keys and values of llama-1b")):
        most = one.metrics()["kv_peak_share"] * one.service.cached_tokens * one.service.model.token_bytes(1)
        assert owners[name][1].max() == pytest.approx(most, rel=1e-3)
    assert engines_share(found) == int(0.8 * capacity_of(found))
    save_answer(found, tmp_path)
    rows = (tmp_path / "requests_beside.csv").read_text().splitlines()
    assert len(rows) == 1 + len(found.beside.served.arrival) and rows[0].startswith("arrival,prompt,output")


def test_gpus_of_two_kinds_are_counted_each_with_its_own_context() -> None:
    found = serve("llama-8b", "hgx-h100 + dgx-a100", DRAWN, rate=6.0, prefill=8)
    contexts = [found.service.topology.profile(gpu).context.value for group in found.service.groups for gpu in group]
    owners = memory_by_owner(found)
    assert int(owners["context"][1][0]) == sum(map(round, contexts)) and len(contexts) == 16
    assert int(owners["weights"][1][0]) == 16 * found.service.model.weight_bytes(1)


def test_the_figure_shows_three_distributions_and_the_memory(tmp_path: Path) -> None:
    plain = draw(serve("llama-8b", "l40s", DRAWN, rate=2.0))
    assert [panel.get_xlabel().split(" [")[0] for panel in plain.axes] == [
        "time to first token", "time per output token", "latency", "time",
    ]  # fmt: skip
    searched = serve("llama-8b", "l40s", DRAWN, slo="ttft 2 s, tpot 60 ms")
    panels = {(panel.get_xlabel(), panel.get_ylabel()): panel for panel in draw(searched).axes}
    assert len(panels) == 6
    assert searched.search is not None
    over = panels["requests a second", "latency [ms]"]
    marks = [line.get_xdata()[0] for line in over.lines if line.get_label() == "largest rate"]
    assert marks == [searched.search.best]
    half = next(line for line in over.lines if line.get_label() == "p50")
    wanted = [np.nanpercentile(point.served.latency_ns(), 50) / 1e6 for point in searched.search.points]
    assert half.get_ydata().tolist() == pytest.approx(wanted)
    assert {path.name for path in save_answer(searched, tmp_path)} >= {"serving.png", "serving.json", "requests.csv"}
