"""Do the policies rmm_* answer as the real RMM library, address by address?

    python tests/support/fuzz_rmm.py --oracle PATH [--only pool,arena,fixed,binning] [--operations 200000] [--seed 0]

PATH is a program that links RMM over a stand-in CUDA runtime and a device that only keeps books: it gives ranges at
multiples of 256 bytes, upwards, and with --reuse first the lowest gap of what was given back.  It replays a log of RMM's
logging adaptor (--log FILE) through one resource:

    --capacity BYTES --mr pool [--initial BYTES] [--max BYTES] [--reuse]
                     --mr arena --arena BYTES
                     --mr fixed --block BYTES --blocks COUNT
                     --mr binning --bins LOW:HIGH [--initial BYTES] [--max BYTES]

and prints one line for each event, as `rmm_logs` says, then to stderr a JSON object with the release ("rmm") and totals:
waits and records of events, synchronisations, upstream calls.  An oracle of RMM 26.10 must be told to let the legacy stream
come first (FAKE_CUDART_LEGACY_NULL=1), and is exact for the pool.  --size-classes says that the arena has size classes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import tempfile
from pathlib import Path

from rmm_logs import Request, answers, policy_of

from gpusim.policies import registry

KIB, MIB = 1 << 10, 1 << 20
HANDLES = ["0x1", *(f"0x55d0c0de00{k}0" for k in range(1, 8))]


def draw(rng: random.Random, mr: str) -> list[str]:
    """Arguments of a case: small memories, so that it is refused, steals and grows often."""
    capacity = rng.choice([64 * KIB, MIB, 8 * MIB, 64 * MIB, 1024 * MIB]) + rng.randrange(0, 4096)
    args = ["--mr", mr, "--capacity"]
    if mr == "arena":
        size = rng.choice([1, 2, 3, 8, 20, 64, 300]) * MIB + rng.randrange(0, MIB)
        return [*args, str(size + 256), "--arena", str(size)]
    if mr == "fixed":
        block, count = rng.choice([256, 1000, 4096, 65536]), rng.choice([1, 3, 16, 128])
        return [*args, str(-(-block // 256) * 256 * count * rng.randrange(1, 9)), "--block", str(block), "--blocks", str(count)]
    pool = []
    if mr == "binning":
        low = rng.randrange(7, 15)
        bins = low, low + rng.randrange(0, 4)
        capacity += 128 * (2 << bins[1])
        pool += ["--bins", f"{bins[0]}:{bins[1]}"]
    if rng.random() < 0.6:
        initial = int(capacity * rng.random()) // 256 * 256
        pool += ["--initial", str(initial)]
        if rng.random() < 0.5:
            pool += ["--max", str(initial + 256 * rng.choice([0, 1, 2, rng.randrange(1, capacity // 256)]))]
    elif rng.random() < 0.6:
        share = rng.choice([0.5, 1, 1.2])
        pool += ["--max", str(rng.choice([768, 1280, int(capacity * share) // 256 * 256]))]
    if rng.random() < 0.5:
        pool += ["--reuse"]
    return [*args, str(capacity), *pool]


def program(rng: random.Random, operations: int, limit: int, streams: int) -> list[Request]:
    """Phases in which the share of frees, the sizes and the streams change; some frees come from other streams."""
    live: list[tuple[int, int]] = []
    ops: list[Request] = []
    units = 0
    while len(ops) < operations:
        frees, low, high = rng.choice([0.2, 0.45, 0.55, 0.8]), rng.uniform(0, 12), rng.uniform(8, limit.bit_length())
        across, few = rng.choice([0, 0, 0.1, 0.5]), rng.randrange(1, streams + 1)
        common = [rng.randrange(1, limit) >> rng.randrange(0, 10) for _ in range(3)]
        for _ in range(rng.randrange(1, 80)):
            if live and rng.random() < frees:
                at = rng.choice([0, len(live) - 1, rng.randrange(len(live))])
                live[at], live[-1] = live[-1], live[at]
                unit, stream = live.pop()
                ops.append(Request(unit, -1, rng.randrange(streams) if rng.random() < across else stream))
                continue
            size = rng.choice([int(2 ** rng.uniform(min(low, high), high)), rng.choice(common), 256 * rng.randrange(9)])
            if rng.random() < 0.003:
                size = rng.choice([1 << 40, limit + 1, (1 << 63) - 1])
            stream = rng.randrange(few)
            live.append((units, stream))
            ops.append(Request(units, size, stream))
            units += 1
    return ops


def log_of(requests: list[Request], handles: list[str]) -> str:
    sizes: dict[int, int] = {}
    lines = ["Thread,Time,Action,Pointer,Size,Stream"]
    for unit, size, stream in requests:
        sizes.setdefault(unit, size)
        action = "allocate" if size >= 0 else "free"
        lines.append(f"1,00:00:00.000000,{action},{0x7F0000000000 + 0x100 * unit:#x},{sizes[unit]},{handles[stream]}")
    return "\n".join(lines) + "\n"


def ask(oracle: Path, args: list[str], log: Path) -> tuple[list[str], dict[str, float | str]]:
    """(lines, totals); no lines when the resource cannot be constructed."""
    env = {**os.environ, "FAKE_CUDART_LEGACY_NULL": "1"} if "26.1" in release(oracle) else None
    done = subprocess.run([oracle, "--log", log, *args], capture_output=True, text=True, check=False, env=env)
    if done.stdout.startswith("CONSTRUCT FAIL"):
        return [], {}
    assert done.returncode == 0, f"{args}: exit code {done.returncode} {done.stderr}"
    return done.stdout.splitlines(), json.loads(done.stderr)


_release: dict[Path, str] = {}


def release(oracle: Path) -> str:
    """The release of RMM that an oracle is built with."""
    if oracle not in _release:
        _release[oracle] = "?"
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            log.write_text(log_of([], []))
            _release[oracle] = str(ask(oracle, ["--mr", "pool"], log)[1]["rmm"])
    return _release[oracle]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--only", default="pool,arena,fixed,binning")
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size-classes", action="store_true")
    given = parser.parse_args()
    rmm = tuple(int(n) for n in release(given.oracle).split("."))
    for mr in given.only.split(","):
        cases = operations = refused = waits = 0
        while operations < given.operations:
            seed = given.seed + cases
            rng = random.Random(f"{mr} {seed}")
            args, streams = draw(rng, mr), rng.choice([1, 1, 2, 4, 8])
            handles = ["0", *rng.sample(HANDLES, streams - 1)]
            limit = int(args[args.index("--arena" if mr == "arena" else "--block" if mr == "fixed" else "--capacity") + 1])
            requests = program(rng, rng.choice([100, 1000, 3000]), max(limit // rng.choice([1, 4, 50]), 2), streams)
            if rmm >= (26, 10):
                requests[0] = requests[0]._replace(stream=0, size=max(1, requests[0].size))
            spec, capacity = policy_of(args, rmm[:2], handles.index("0x1") if "0x1" in handles else -1)  # type: ignore[arg-type]
            if given.size_classes:
                spec = spec[:-1] + ", size_classes=1)"
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "log"
                log.write_text(log_of(requests, handles))
                wanted, totals = ask(given.oracle, args, log)
            policy = registry.get("place", spec)
            lines, S = answers(policy, capacity, requests)
            cases += 1
            if not wanted:
                assert all(line.split()[3] in ("OOM", "NULL") for line in lines if " A " in line), (mr, seed, args)
                continue
            for ours, theirs in zip(lines, wanted, strict=True):
                assert ours == theirs, f"{mr} seed {seed} {' '.join(args)}: {ours!r}, the library: {theirs!r}"
            counted = policy.module.statistics(S)
            assert counted["cross_stream_waits"] == totals["waits"], (mr, seed, counted, totals)
            assert counted["upstream_calls"] == totals["upstream_calls"], (mr, seed, counted, totals)
            if mr == "arena":  # which waits once more when it is destroyed
                assert counted["synchronisations"] + 1 == totals["syncs"], (mr, seed, counted, totals)
            if mr == "pool":  # the others record more when they are destroyed, or merge lists as from 26.10 on
                assert counted["event_records"] == totals["records"], (mr, seed, counted, totals)
            operations += len(requests)
            refused += sum(" OOM " in line for line in lines)
            waits += int(totals["waits"])
        print(
            f"RMM {release(given.oracle)} {mr}: {operations} operations in {cases} cases, {refused} refused, {waits} waits:"
            " no difference", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
