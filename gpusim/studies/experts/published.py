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
def rows() -> list[dict[str, Any]]:
    """What was published, `step_s` seconds of a step (one token of each sequence), and `said`: simulated, by where weights come
    from.  A simulated step is one that decodes.
    """
    data: dict[str, Any] = document.read(DATA).data
    found = []
    for row in data["rows"]:
        step = row["batch"] / row["tokens_per_s"] if "tokens_per_s" in row else row["token_s"]
        places = ("pageable", "nvme") if row["like"] == "accelerate" else ("pinned",)
        found.append({**row, "step_s": step, "said": {place: _step(data, row, place) for place in places}})
    return found


def _step(data: dict[str, Any], row: dict[str, Any], place: Any) -> float:
    assumed, model, batch = data["assumed"], row["model"], row["batch"]
    every: Any = assumed["uses"][model] if row["like"] in ("accelerate", "deepspeed") else "chosen"
    words = like(row["like"]) | {"source_memory": place, "uses": every, "bits": row.get("bits", assumed["bits"][model])}
    routing = f"{assumed['routing'][model][:-1]}, sequences={max(batch, 4)})"
    spec = ExpertSpec(model=model, machine=data["machine"], batch=batch, routing=routing, **words)
    return answered(spec).metrics()["token_ns"] / 1e9


def ratios() -> list[tuple[str, float, float]]:
    """(system and model, how much longer a step of 32 sequences takes than one of one, published and simulated)."""
    step = {(row["like"], row["model"], row["batch"]): (row["step_s"], next(iter(row["said"].values()))) for row in rows()}
    found = []
    for (system, model, batch), (known, said) in step.items():
        if batch == 1 and (system, model, 32) in step:
            many = step[system, model, 32]
            found.append((f"{system}, {model}", many[0] / known, many[1] / said))
    return found


def table() -> str:
    """Both tables, as Markdown."""
    lines = ["| system | model | batch | published, s a step | from | simulated | error |", "| --- | --- " + "| ---: " * 2]
    lines[-1] += "| --- | ---: | ---: |"
    for row in rows():
        for i, (place, said) in enumerate(row["said"].items()):
            head = f"{row['like']} | {row['model']} | {row['batch']} | {row['step_s']:.3g}" if i == 0 else "| | |"
            lines.append(f"| {head} | {place} | {said:.3g} | {said / row['step_s'] - 1:+.0%} |")
    streamed = [abs(next(iter(row["said"].values())) / row["step_s"] - 1) for row in rows() if not row.get("routed")]
    lines += ["", f"Median of those that stream, of each the first line: {np.median(streamed):.0%}.", ""]
    lines += ["| step of 32 sequences over one of one | published | simulated | error |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {name} | {known:.2f} | {said:.2f} | {said / known - 1:+.0%} |" for name, known, said in ratios()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
