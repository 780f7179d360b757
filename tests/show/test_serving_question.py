"""The figure of a question about services: labels that tell rows apart, times, rates, and what was not served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusim.base.yaml import find
from gpusim.show.serving_question import draw, label, short
from gpusim.studies.serving.questions import read

GOLDEN = Path(__file__).parents[1] / "golden" / "serving"
NAMES = find.names("serving question")


@pytest.mark.parametrize("name", NAMES)
def test_labels_tell_rows_apart(name: str) -> None:
    asked, rows = read(find.find("serving question", name, None)), json.loads((GOLDEN / f"{name}.json").read_text())
    labels = [label(asked, row) for row in rows]
    assert len(set(labels)) == len(rows) and max(map(len, labels)) < 90


def test_a_word_is_as_short_as_it_may_be() -> None:
    assert short("l40s", ["l40s", "a100"]) == "l40s"
    batching = "dynamic_batching(preferred_batch_size='4,8')"
    assert short(batching, ["static", batching]) == "dynamic_batching"
    two = ["vllm@0.9(preemption_mode=recompute)", "vllm@0.9(preemption_mode=swap, num_cpu_blocks=16384)"]
    assert [short(word, two) for word in two] == ["preemption_mode=recompute", "preemption_mode=swap, num_cpu_blocks=16384"]


@pytest.mark.parametrize("name", ["two_kinds", "burst_shared"])
def test_each_row_has_its_times_and_what_it_bears(name: str) -> None:
    asked, rows = read(find.find("serving question", name, None)), json.loads((GOLDEN / f"{name}.json").read_text())
    there = [row for row in rows if "why not" not in row]
    figure = draw(asked, rows)
    panels = {panel.get_xlabel(): panel for panel in figure.axes}
    first, unit = (panels["to first token [s]"], 1e3) if name == "burst_shared" else (panels["to first token [ms]"], 1.0)
    late = next(line for line in first.lines if line.get_gid() == "TTFT p99")
    assert late.get_xdata().tolist() == pytest.approx([row["TTFT p99 [ms]"] / unit for row in there])
    text = " ".join(item.get_text() for item in figure.texts)
    if name == "two_kinds":
        widths = [bar.get_width() for bar in panels["largest rate [1/s]"].patches]
        assert widths == [row["rate [1/s]"] for row in there]
        assert "Cheapest: dgx-a100 + hgx-h100, prefill 12" in text
    else:
        assert "4 of 12 combinations were not served: tiers are not modelled with 'static'" in text
