"""Memory snapshots as torch.cuda.memory._dump_snapshot() writes them, made by the real allocator from programs of commands.

    python tests/support/oracle_snapshots.py torch_oracle [--seeds 100] [--first 0]

plays random programs in the binary of the real library, records each from some moment on, and says what share of them the
baseline repeats exactly; of those recorded from their start, whether each other setting holds what the library holds under it.
`snapshot` is for tests with programs of their own.
"""

from __future__ import annotations

import argparse
import collections
import pickle
import random
import sys
from pathlib import Path
from typing import Any

from pytorch_oracle import Command, Oracle, Program

MIB = 1 << 20
CONFS = (
    "", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4",
    "expandable_segments:True,max_split_size_mb:128", "max_split_size_mb:40,roundup_power2_divisions:[64:8,256:4,>:1]",
)  # fmt: skip


def snapshot(lines: list[str], conf: str, begin: int = 0) -> dict[str, Any]:
    """The snapshot of a program, from what the library printed for its commands, which end with "s".

    begin  the history holds what happened from this command on, as when it was switched on then
    """
    events: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    done = 0
    for line in lines:
        words = line.split()
        if line.startswith("+ ") and done >= begin:
            event: dict[str, Any] = {"action": words[1], "size": int(words[3]), "stream": int(words[4]) * 4096, "frames": []}
            event["device_free" if words[1] == "oom" else "addr"] = int(words[2])
            events.append(event)
        elif line.startswith("= "):
            done += 1
        elif line.startswith("# segment ") and "pool" in words:
            segments.append({
                "address": int(words[2]), "total_size": int(words[3]), "stream": int(words[4]) * 4096,
                "segment_type": words[5], "is_expandable": words[6] == "1",
                "segment_pool_id": (int(words[8]), int(words[9])), "device": 0, "blocks": [],
            })  # fmt: skip
        elif line.startswith("#   block"):
            segments[-1]["blocks"].append(
                {"address": int(words[2]), "size": int(words[3]), "requested_size": int(words[4]), "state": words[5]}
            )
    return {"segments": segments, "device_traces": [events], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": conf}}


def save(data: dict[str, Any], path: Path) -> Path:
    path.write_bytes(pickle.dumps(data))
    return path


def training(seed: int, conf: str, streams: int = 2, pools: int = 0) -> Program:
    """A program that allocates and frees as training does: layers up and down, some of it on another stream, caches emptied.

    pools  so many private pools serve some of the requests
    """
    rng = random.Random(seed)
    commands: list[Command] = []
    ids = iter(range(1, 1 << 30))
    live: list[int] = []

    def alloc(size: int, keep: bool = False) -> int:
        made = next(ids)
        request = ("a", made, size, rng.randrange(streams) if rng.random() < 0.1 else 0)
        pool = 1 + rng.randrange(pools) if pools and rng.random() < 0.4 else 0
        commands.extend([("p", "begin", pool), request, ("p", "end", pool)] if pool else [request])
        if not keep:
            live.append(made)
        return made

    layers = [rng.choice((rng.randrange(512, MIB), rng.randrange(MIB, 30 * MIB), rng.randrange(8 * MIB, 120 * MIB)))
              for _ in range(rng.randrange(2, 9))]  # fmt: skip
    for size in layers:
        alloc(size, keep=True)
    for _ in range(rng.randrange(2, 7)):
        scale = rng.choice((1.0, 1.0, rng.uniform(0.3, 2.5)))
        for size in layers:
            alloc(max(1, int(size * scale)))
            if rng.random() < 0.5:
                commands.append(("f", alloc(max(1, int(size * scale * rng.random())))))
                live.pop()
            if rng.random() < 0.1 and live:
                commands.append(("r", rng.choice(live), rng.randrange(streams)))
        while live and rng.random() < 0.97:
            commands.append(("f", live.pop(rng.randrange(len(live)) if rng.random() < 0.2 else -1)))
        if rng.random() < 0.3:
            commands.append(("e",))
    total = rng.choice((1 << 36, 1 << 36, rng.randrange(200, 1200) * MIB // 2 * 2))
    return Program(conf, total, tuple(commands))


def recorded(oracle: Oracle, case: Program, begin: int = 0) -> dict[str, Any] | None:
    """None when the library aborts."""
    lines = oracle.run(Program(case.conf, case.total, (*case.commands, ("s",)), case.device))
    return None if lines is None else snapshot(lines, case.conf, begin)


def held_under(oracle: Oracle, case: Program, conf: str) -> int | None:
    """Most bytes that the library holds under other settings; None when it aborts."""
    lines = oracle.run(Program(conf, case.total, case.commands, case.device))
    peaks = [int(line.split()[3]) for line in lines or [] if line.startswith("# reserved_bytes.all ")]
    return peaks[0] if peaks else None


def main() -> None:
    from gpusim.programs.recordings import import_trace
    from gpusim.studies.fragmentation.baseline import baseline, under
    from gpusim.studies.fragmentation.candidates import pytorch

    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--pools", type=int, default=0)
    given = parser.parse_args()
    oracle, path = Oracle(given.binary), Path("/tmp") / f"oracle_{given.first}.pickle"
    count: collections.Counter[str] = collections.Counter()
    for seed in range(given.first, given.first + given.seeds):
        rng = random.Random(seed)
        case = training(seed, rng.choice(CONFS), rng.randrange(1, 4), given.pools)
        begin = rng.choice((0, rng.randrange(len(case.commands))))
        data = recorded(oracle, case, begin)
        if data is None:
            count["aborted"] += 1
            continue
        if not data["device_traces"][0] or not data["segments"]:
            continue
        trace = import_trace(save(data, path))
        found = baseline(trace)
        kind = "from the middle" if begin else "from the start"
        count[f"{kind}, {'exact' if found.exact else 'not'}"] += 1
        if not found.exact:
            ooms = sum(event["action"] == "oom" for event in data["device_traces"][0])
            print(seed, case.conf or "-", begin, f"ooms {ooms}", found.reason, file=sys.stderr)
        elif not begin:
            base = baseline(trace, case.total)
            for conf in CONFS:
                real, held = held_under(oracle, case, conf), under(base, pytorch(conf)).held[1]
                count[f"other settings, {'as the library' if held == real else 'not'}"] += 1
                if held != real:
                    print(seed, case.conf or "-", f"under {conf or '-'}: {held} instead of {real}", file=sys.stderr)
    print(dict(count))


if __name__ == "__main__":
    main()
