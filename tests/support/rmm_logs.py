"""Requests to RMM's resources, and their answers in the words of the program that drives the real library.

    N A SIZE ADDRESS|OOM|NULL HELD     event N is an allocation
    N F SIZE ADDRESS|SKIP HELD         a free; SKIP: its allocation had failed
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gpusim.policies.contract import HELD
from gpusim.trace.trace import ALLOC, FREE, Trace


class Request(NamedTuple):
    unit: int
    size: int  # -1 frees
    stream: int


def of_trace(trace: Trace) -> list[Request]:
    rows = zip(trace.kind.tolist(), trace.arg.tolist(), trace.stream.tolist(), strict=True)
    return [
        Request(unit, int(trace.size[unit]) if kind == ALLOC else -1, stream)
        for kind, unit, stream in rows
        if kind in (ALLOC, FREE)
    ]


def policy_of(args: list[str], rmm: tuple[int, int], legacy: int = -1) -> tuple[str, int]:
    """(policy, capacity) for the arguments of the oracle's command line and the release of RMM it is built with."""
    given = dict(zip(args[::2], args[1::2], strict=False))
    capacity = int(given.get("--capacity", 1 << 40))
    pool = {"initial": given.get("--initial", 0), "maximum": given.get("--max", 0), "reclaim": int(rmm >= (26, 10))}
    layer = {"reuse": int("--reuse" in args), "legacy": legacy}
    if given["--mr"] == "pool":
        params = pool | layer
    elif given["--mr"] == "arena":
        params = {"size": given["--arena"]}
    elif given["--mr"] == "fixed":
        params = {"block_size": given["--block"], "blocks": given["--blocks"], "legacy": legacy}
    else:
        low, high = given["--bins"].split(":")
        params = {"min_size_exponent": low, "max_size_exponent": high} | pool | layer
    return f"rmm_{given['--mr']}({', '.join(f'{k}={v}' for k, v in params.items())})", capacity


def answers(policy: Any, capacity: int, requests: list[Request]) -> tuple[list[str], Any]:
    """What the policy answers, line by line, and its table."""
    units = max((r.unit for r in requests), default=0) + 1
    S = policy.state(capacity, units, units, policy.params)
    live: dict[int, int] = {}
    sizes: dict[int, int] = {}
    lines = []
    for n, (unit, size, stream) in enumerate(requests):
        if size >= 0:
            addr = int(policy.alloc(S, unit, size, stream))
            said = "NULL" if size == 0 else "OOM" if addr < 0 else str(addr)
            if addr >= 0:
                live[unit] = addr
            sizes[unit] = size
            lines.append(f"{n} A {size} {said} {S[HELD]}")
        elif unit in live:
            policy.free(S, unit, stream)
            lines.append(f"{n} F {sizes[unit]} {live.pop(unit)} {S[HELD]}")
        else:
            lines.append(f"{n} F {sizes[unit]} SKIP {S[HELD]}")
    return lines, S
