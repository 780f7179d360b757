"""Does `bfc` answer as the real allocator of a TensorFlow wheel, address by address?

    python tests/support/fuzz_bfc.py --oracle PATH [--cases 200] [--operations 2000] [--seed 0]
        [--write tests/data/bfc_cases.csv]

PATH is a program that links tsl::BFCAllocator over a device which only keeps books: lowest free range, whole pages of 2 MiB.
Its options are --capacity, --limit (bytes), --growth, --gc, --join, --contiguous (0: only the bytes must be there) and
--fraction (fragmentation_fraction).  It reads `a ID SIZE` and `f ID`, one a line, and prints what it does and answers:

    ! ADDR BYTES                  a region is taken; BYTES is negative when it is given back
    = N a ID ADDR BLOCK HELD      ADDR is -1 when the request is refused, -2 when it asks for nothing
    = N f ID HELD

--write keeps the cases as a file that test_place_bfc.py reads.
"""

from __future__ import annotations

import argparse
import random
import subprocess
from pathlib import Path
from typing import Any

from gpusim.policies import registry
from gpusim.policies.contract import BLOCK, CALL_LIST, CALLS, HELD

MIB = 1 << 20
HEAD = "# What tsl::BFCAllocator of tensorflow-cpu 2.21.0 answered; written by fuzz_bfc.py, which says what the rows are"
Line = tuple[str, ...]


def draw(seed: int) -> tuple[int, dict[str, float], dict[str, float]]:
    """(capacity, parameters of the policy, options of the oracle) of a case."""
    rng = random.Random(seed)
    capacity = rng.choice([48, 100, 256, 999]) * MIB
    growth, gc, join = rng.random() < 0.8, rng.random() < 0.7, rng.random() < 0.3
    contiguous = rng.random() < 0.6
    waste = rng.choice([0, 0, 0.25, 0.015625])
    share = rng.choice([1.0, 1.0, 0.75, 0.5])
    limit = capacity if share == 1 else min(capacity, -(-int(share * capacity) // (2 * MIB)) * 2 * MIB)
    params = {
        "fraction": share, "allow_growth": int(growth), "garbage_collection": int(gc), "coalesce_regions": int(join),
        "fragmentation_fraction": waste, "contiguous": int(contiguous),
    }  # fmt: skip
    options = {"capacity": capacity, "limit": limit, "growth": growth, "gc": gc, "join": join, "fraction": waste}
    options["contiguous"] = contiguous
    return capacity, params, options


def program(seed: int, operations: int, capacity: int) -> list[tuple[int, int]]:
    """(unit, bytes), bytes -1 frees; phases in which the share of frees and the sizes change."""
    rng = random.Random(seed)
    live: list[int] = []
    spare = list(range(operations))[::-1]
    ops: list[tuple[int, int]] = []
    while len(ops) < operations:
        frees, low, high = rng.choice([0.2, 0.45, 0.55, 0.8]), rng.uniform(12, 16), rng.uniform(17, capacity.bit_length() - 1)
        for _ in range(rng.randrange(1, 60)):
            if live and rng.random() < frees:
                at = rng.randrange(len(live))
                live[at], live[-1] = live[-1], live[at]
                ops.append((live.pop(), -1))
            else:
                live.append(spare.pop())
                size = int(2 ** rng.uniform(low, high)) if rng.random() < 0.9 else rng.choice([0, 4096, MIB, 2 * MIB, 16 * MIB])
                ops.append((live[-1], size))
    return ops[:operations]


def lines(ops: list[tuple[int, int]]) -> str:
    return "".join(f"a {u} {s}\n" if s >= 0 else f"f {u}\n" for u, s in ops)


def oracle(path: str, ops: list[tuple[int, int]], options: dict[str, float]) -> list[Line]:
    given = [text for name, value in options.items() for text in (f"--{name}", str(value + 0))]
    done = subprocess.run([path, *given], input=lines(ops), capture_output=True, text=True, timeout=120, check=True)
    return [tuple(line.split()) for line in done.stdout.splitlines()]


def simulated(ops: list[tuple[int, int]], capacity: int, policy: Any, S: Any) -> list[Line]:
    """What the policy says, in the oracle's words."""
    found: list[Line] = []
    for n, (unit, size) in enumerate(ops):
        addr = int(policy.alloc(S, unit, size, 0) if size >= 0 else policy.free(S, unit, 0))
        at = int(S[CALL_LIST])
        found += [("!", str(S[at + 2 * i]), str(S[at + 2 * i + 1])) for i in range(S[CALLS])]
        held = str(S[HELD])
        if size < 0:
            found.append(("=", str(n), "f", str(unit), held))
        else:
            block = S[BLOCK] if addr >= 0 else 0
            found.append(("=", str(n), "a", str(unit), str(addr if size else -2), str(block), held))
    return found


def golden(ops: list[tuple[int, int]], answers: list[Line]) -> list[str]:
    """The answers as rows: d,ADDR,BYTES (device call), a,UNIT,SIZE,ADDR,BLOCK,HELD and f,UNIT,HELD."""
    rows = []
    for line in answers:
        if line[0] == "!":
            rows.append(",".join(("d", *line[1:])))
        else:
            unit, size = ops[int(line[1])]
            rows.append(",".join(map(str, ("a", unit, size, *line[4:]) if line[2] == "a" else ("f", unit, line[4]))))
    return rows


def policy_of(params: dict[str, float]) -> Any:
    return registry.get("place", "bfc(" + ", ".join(f"{k}={v}" for k, v in params.items()) + ")")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    kept, requests, refused, calls, collected = [], 0, 0, 0, 0
    for seed in range(given.seed, given.seed + given.cases):
        capacity, params, options = draw(seed)
        ops = program(seed, given.operations, capacity)
        policy = policy_of(params)
        S = policy.state(capacity, given.operations, given.operations, policy.params)
        mine, theirs = simulated(ops, capacity, policy, S), oracle(given.oracle, ops, options)
        for n, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            assert a == b, f"case {seed} {params} capacity {capacity}, line {n}: {' '.join(a)}, the oracle says {' '.join(b)}"
        assert len(mine) == len(theirs), f"case {seed}"
        requests += len(ops)
        refused += sum(line[4:5] == ("-1",) for line in theirs)
        calls += sum(line[0] == "!" for line in theirs)
        collected += sum(line[0] == "!" and line[2][0] == "-" for line in theirs)
        kept += [f"case,{capacity}," + ",".join(f"{k}={v}" for k, v in params.items()), *golden(ops, theirs)]
    print(f"the same: {given.cases} cases, {requests} requests, {refused} refused, {calls} calls, {collected} give back")
    if given.write:
        given.write.write_text("\n".join([HEAD, *kept]) + "\n")


if __name__ == "__main__":
    main()
