"""Published systems with weights below the GPU, and what the service of the same words does.

    python -m gpusim.studies.serving.weights_published     the table of docs/serving_offload.md
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpusim.base.errors import GpusimError
from gpusim.programs.serving.requests import requests_of
from gpusim.studies.serving.setup import ServiceSpec, prepare

DATA = Path(__file__).parent / "data" / "weights_published.csv"
MACHINE = "t4(host.capacity=208 GiB, nvme.capacity=1.5 TB)"
MEMORY = 1.0  # of the card: these systems take what there is, and no share as vLLM does
PROMPT, OUTPUT = 512, 32


class PublishedThroughput(NamedTuple):
    """One row: tokens of output a second, as printed; `offload`: the configuration in words, "" where it is not simulated."""

    system: str
    model: str
    requests: int
    published: str
    offload: str
    why: str

    @property
    def rounding(self) -> float:
        """Half of the last printed digit."""
        return 0.5 * 10.0 ** -len(self.published.partition(".")[2])


def published() -> list[PublishedThroughput]:
    """The rows of the file, in its order."""
    with DATA.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [
            PublishedThroughput(r["system"], r["model"], int(r["requests"] or 0), r["published"], r["offload"], r["why"])
            for r in rows
        ]


def simulated(row: PublishedThroughput) -> float:
    """Tokens of output a second.  Raises GpusimError for a row that is not simulated."""
    if not row.offload:
        raise GpusimError(f"{row.system} is not simulated: {row.why}")
    offload = "" if row.offload == "none" else row.offload
    service = prepare(ServiceSpec(
        model=row.model, machine=MACHINE, engine="static", max_seqs=row.requests, max_len=PROMPT + OUTPUT, offload=offload,
        max_tokens=row.requests * PROMPT, memory=MEMORY,
    ))  # fmt: skip
    run = service.start(requests_of(f"drawn(prompt={PROMPT}, output={OUTPUT}, requests={row.requests}, spread=0)"))
    run.advance()
    return float(run.result().summary()["output_tokens_per_s"])


def errors(found: Sequence[tuple[PublishedThroughput, float]]) -> list[float]:
    """|simulated / published - 1| of the rows whose rounding leaves less than a tenth open."""
    return [abs(value / float(row.published) - 1) for row, value in found if row.rounding < 0.1 * float(row.published)]


def nearest_errors(found: Sequence[tuple[PublishedThroughput, float]]) -> list[float]:
    """The same of all rows, and of the number nearest to the simulated one that is printed so."""
    near = [min(max(value, float(r.published) - r.rounding), float(r.published) + r.rounding) for r, value in found]
    return [abs(value / told - 1) for (_, value), told in zip(found, near, strict=True)]


def lines(found: Sequence[tuple[PublishedThroughput, float]]) -> Iterator[str]:
    """The table, as Markdown."""
    yield "| system | model | requests | `--offload` | published, tokens/s | simulated | error |"
    yield "| --- | --- | ---: | --- | ---: | ---: | ---: |"
    values = dict(found)
    for row in published():
        head = f"| {row.system} | {row.model or '-'} | {row.requests or '-'} "
        if row not in values:
            yield f"{head}| not simulated: {row.why} | {row.published} | - | |"
            continue
        value, near = values[row], float(row.published)
        error = f"{100 * (value / near - 1):+.0f} %"
        if row.rounding > 0.1 * near:
            error = "within its rounding" if abs(value - near) <= row.rounding else f"{error}, beyond its rounding"
        words = row.offload if row.offload == "none" else f"`{row.offload}`"
        yield f"{head}| {words} | {row.published} | {value:.3g} | {error} |"
    sizes, every = errors(found), nearest_errors(found)
    middle, most, nearest = (f"{100 * size:.0f} %" for size in (statistics.median(sizes), max(sizes), statistics.median(every)))
    yield ""
    yield f"Median error of the {len(sizes)} rows that are printed with two digits or more: {middle}; the largest {most}."
    yield f"Of all {len(every)}, against the nearest number that is printed so: {nearest}."


if __name__ == "__main__":
    print("\n".join(lines([(row, simulated(row)) for row in published() if row.offload])))
