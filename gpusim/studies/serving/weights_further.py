"""Published systems with weights below the GPU beyond FlexGen's table, and what the service of the same words does.

    python -m gpusim.studies.serving.weights_further     the second table of docs/serving_offload.md
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpusim.base.errors import GpusimError
from gpusim.programs.serving.requests import requests_of
from gpusim.studies.serving.setup import PreparedService, ServiceSpec, prepare
from gpusim.studies.serving.weights_published import MEMORY

DATA = Path(__file__).parent / "data" / "weights_further.csv"


class FurtherThroughput(NamedTuple):
    """One row: tokens of output a second, of the whole run or of decoding alone."""

    machine: str
    system: str
    model: str
    requests: int
    prompt: int
    output: int
    phase: str
    published: str
    offload: str


def further() -> list[FurtherThroughput]:
    """The rows of the file, in its order."""
    with DATA.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return [
        FurtherThroughput(
            r["machine"], r["system"], r["model"], int(r["requests"]), int(r["prompt"]), int(r["output"]), r["phase"],
            r["published"], r["offload"],
        )
        for r in rows
    ]  # fmt: skip


def simulated(row: FurtherThroughput) -> float | str:
    """Tokens of output a second; or why there are none."""
    try:
        return _simulated(row)
    except GpusimError as error:
        return error.message


def _simulated(row: FurtherThroughput) -> float:
    service = prepare(ServiceSpec(
        model=row.model, machine=row.machine, engine="static", max_seqs=row.requests, max_len=row.prompt + row.output,
        offload=row.offload, max_tokens=row.requests * row.prompt, memory=MEMORY,
    ))  # fmt: skip
    if row.phase == "all":
        return row.requests * row.output / _ns(service, row, row.output) * 1e9
    return row.requests * (row.output - 1) / (_ns(service, row, row.output) - _ns(service, row, 1)) * 1e9


def _ns(service: PreparedService, row: FurtherThroughput, output: int) -> int:
    """Of all requests with answers of so many tokens."""
    run = service.start(requests_of(f"drawn(prompt={row.prompt}, output={output}, requests={row.requests}, spread=0)"))
    run.advance()
    return run.result().makespan_ns


def errors(found: Sequence[tuple[FurtherThroughput, float | str]]) -> list[float]:
    """|simulated / published - 1| of what could be simulated."""
    return [abs(value / float(row.published) - 1) for row, value in found if isinstance(value, float)]


def lines(found: Sequence[tuple[FurtherThroughput, float | str]]) -> Iterator[str]:
    """The table, as Markdown."""
    yield "| machine | system | model | requests | prompt, output | `--offload` | published, tokens/s | simulated | error |"
    yield "| --- | --- | --- | ---: | ---: | --- | ---: | ---: | ---: |"
    for row, value in found:
        if isinstance(value, str):
            yield f"{_head(row)}| `{row.offload}` | {row.published} | - | refused: {value} |"
            continue
        error = f"{100 * (value / float(row.published) - 1):+.0f} %"
        yield f"{_head(row)}| `{row.offload}` | {row.published} | {value:.3g} | {error} |"
    sizes = errors(found)
    yield ""
    yield f"Median error of these {len(sizes)}: {100 * statistics.median(sizes):.0f} %; the largest {100 * max(sizes):.0f} %."


def _head(row: FurtherThroughput) -> str:
    return f"| {row.machine.partition('(')[0]} | {row.system} | {row.model} | {row.requests} | {row.prompt}, {row.output} "


if __name__ == "__main__":
    print("\n".join(lines([(row, simulated(row)) for row in further()])))
