"""What flowed in a run under managed memory, for the referee: each flow, and the links and ways that there were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.engine.run.simulate import Simulation
from gpusim.engine.state import GRANT, SWAPS, TRAFFIC
from gpusim.trace.trace import COPY_IN, COPY_OUT, COPY_PEER


@dataclass(frozen=True)
class PageTraffic:
    """columns  of results.page_log.FLOWS and GRANTS, times in ns of the clock
    said     what the columns rest on: rates of links, links of ways, multiprocessors and slots of copy engines of each GPU
    """

    columns: dict[str, Any]
    said: dict[str, Any]


def of(simulations: Sequence[Simulation], gpus: Sequence[int] = (1,), coupled: bool = False) -> PageTraffic | None:
    """Of the islands of a run, which have come to their end; None where no log was kept.

    gpus: the number of each.  coupled: all have one table of flows
    """
    islands = [simulation.island for simulation in simulations]
    if not islands or islands[0].traffic.size <= 1:
        return None
    rows, rates, routes, kept = list[Any](), list[float](), list[list[Any]](), 0
    grants = [island.grants[: int(island.pager[0]["grants"])] for island in islands]
    given = np.concatenate(grants)
    for number, island in enumerate(islands):
        first = 0 if coupled else len(rates)
        if not coupled or number == 0:
            flows = island.traffic[: int(island.fluid[0]["kept"])].copy()
            flows["process"] = flows["process"] if coupled else number
            rows.append(flows)
            kept += int(island.fluid[0]["kept"])
            rates += island.link["rate"].tolist()
        routes += [[number, way, *_links(island, row, first)] for way, row in enumerate(island.ways)]
    found = np.concatenate(rows)
    devices = [island.devices[0] for island in islands]
    return PageTraffic(
        {f"flow_{name}": found[name].copy() for name in TRAFFIC.names or ()}
        | {f"grant_{name}": given[name].copy() for name in GRANT.names or ()}
        | {"grant_process": np.repeat(np.arange(len(islands)), [len(each) for each in grants])},
        {
            "gpus": list(gpus), "shares": [int(device["shares_sms"]) for device in devices],
            "granted": sum(int(island.pager[0]["grants"]) for island in islands),
            "kept": kept, "rates": rates, "routes": routes, "sms": [int(device["sms"]) for device in devices],
            "engines": [_engines(island) for island in islands], "copies": [[COPY_IN], [COPY_OUT, SWAPS + 1]],
            "pages": [SWAPS, SWAPS + 1, COPY_PEER], "remote": [[len(i.ways) - 2, len(i.ways) - 1, COPY_PEER] for i in islands],
        },
    )  # fmt: skip


def _links(island: Any, way: Any, first: int) -> tuple[list[int], list[int]]:
    """The links of a way, and what lies behind them: the memory, so often as the way passes it."""
    route, end = int(way["route"]), int(way["route_end"])
    behind = island.route[end : end + max(int(way["passes"]), 0)]
    return [first + int(link) for link in island.route[route:end]], [first + int(link) for link in behind]


def _engines(island: Any) -> list[int]:
    """Slots of the copy engines, to the GPU and from it; none where copies take no turns."""
    return island.engines["slots"][1:].tolist() if island.devices[0]["shares_engines"] else []
