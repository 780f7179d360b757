"""python -m gpusim.studies.experts.published: published times of models with experts beside simulated ones, as Markdown.

Nothing is fitted.  What the source does not say is assumed alike for all rows (`published.yaml`), so a row's error is that of
the assumptions, too; the ratio of two rows of one system shows what a batch does, whatever the rates of the machine were.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.yaml import document
from gpusim.studies.experts.setup import ExpertSpec, answered, like

DATA = Path(__file__).with_suffix(".yaml")


@cache
def rows() -> dict[str, dict[str, Any]]:
    """By id what was published, seconds of a step (one token of each sequence), and simulated, by where weights come from."""
    data: dict[str, Any] = document.read(DATA).data
    found = {}
    for row in data["rows"]:
        step = row["batch"] / row["tokens_per_s"] if "tokens_per_s" in row else row["token_s"]
        own = like(row["like"])
        places = ("pageable", "nvme") if row["like"] == "accelerate" else ("pinned",)
        said = {place: _step(data, row, own | {"source_memory": place}) for place in places}
        found[row["id"]] = {**row, "step_s": step, "said": said}
    return found


def _step(data: dict[str, Any], row: dict[str, Any], words: dict[str, Any]) -> float:
    assumed, model, batch = data["assumed"], row["model"], row["batch"]
    every: Any = assumed["uses"][model] if row["like"] in ("accelerate", "deepspeed") else "chosen"
    routing = f"{assumed['routing'][:-1]}, sequences={max(batch, 4)})"
    bits = row.get("bits", assumed["bits"][model])
    spec = ExpertSpec(model=model, machine=data["machine"], batch=batch, routing=routing, bits=bits, uses=every, **words)
    return answered(spec).metrics()["token_ns"] / 1e9


def ratios() -> list[tuple[str, str, float, float]]:
    """(one row, the other, published ratio of their steps, simulated)."""
    data: dict[str, Any] = document.read(DATA).data
    found = []
    for one, many in data["ratios"]:
        a, b = rows()[one], rows()[many]
        place = next(iter(a["said"]))
        found.append((one, many, b["step_s"] / a["step_s"], b["said"][place] / a["said"][place]))
    return found


def table() -> str:
    """Both tables."""
    lines = ["| row | system | model | batch | published, s a step | from | simulated | error |", "| --- " * 8 + "|"]
    for name, row in rows().items():
        for i, (place, said) in enumerate(row["said"].items()):
            head = f"{name} | {row['like']} | {row['model']} | {row['batch']} | {row['step_s']:.3g}" if i == 0 else " | | | | "
            lines.append(f"| {head} | {place} | {said:.3g} | {said / row['step_s'] - 1:+.0%} |")
    streamed = [abs(next(iter(row["said"].values())) / row["step_s"] - 1) for row in rows().values() if not row.get("routed")]
    lines += ["", f"Median of the rows that stream: {np.median(streamed):.0%}.", ""]
    lines += ["| rows | published, batch 32 over one | simulated | error |", "| --- | ---: | ---: | ---: |"]
    errors = []
    for one, many, known, said in ratios():
        errors.append(abs(said / known - 1))
        lines.append(f"| {one}, {many} | {known:.2f} | {said:.2f} | {said / known - 1:+.0%} |")
    return "\n".join([*lines, "", f"Median: {np.median(errors):.0%}."])


if __name__ == "__main__":
    print(table())
