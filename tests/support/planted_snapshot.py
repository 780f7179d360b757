"""A case as it is stored, and as the memory snapshot that PyTorch would have written of it."""

from __future__ import annotations

import json
import lzma
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planted_library import BASE, Library, Program
from planted_recipes import Case
from planted_truth import Truth

LETTERS = {"alloc": "a", "free_requested": "f", "free_completed": "c", "segment_alloc": "s", "segment_free": "r",
           "segment_map": "m", "segment_unmap": "u", "oom": "o"}  # fmt: skip
ACTIONS = {letter: action for action, letter in LETTERS.items()}
COLUMNS, LETTERED = ("action", "addr", "size", "stream", "stack"), ("action", "stream")
STREAMS = [0, 94208531, 94208547, 94208563]  # handles
STATES = ["inactive", "active_allocated", "active_pending_free"]
STRIDE = 1 << 43  # between the addresses of devices
ZERO = {str(1 << k): 0 for k in range(16)}
TORCH = "/usr/lib/python3.12/site-packages/torch"


def record(case: Case, truth: Truth, library: Library) -> dict[str, Any]:
    """All that is stored of a case."""
    stacks: dict[str, int] = {"": 0}
    devices = [_device(program, stacks, library, case.seed) for program in case.devices]
    return {
        "seed": case.seed, "family": case.family, "conf": case.program.conf, "total": case.program.total,
        "subject": case.subject, "devices": devices, "stacks": list(stacks),
        "truth": {"causes": truth.causes, "details": truth.details, "figures": truth.figures, "leak": truth.leak,
                  "settings": truth.settings, "late": bool(case.program.start)},
    }  # fmt: skip


def _device(program: Program, stacks: dict[str, int], library: Library, seed: int) -> dict[str, Any]:
    run = library.run(program, events=True)
    lost = seed % 2 == 0  # the ring buffer lost the beginning, so that older blocks have their stacks nevertheless
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    at: dict[int, int] = {}
    known: set[int] = set()  # the size of what was allocated in the recording is told there
    for n, events in run.events:
        op = program.ops[n]
        for words in events:
            action = words[0]
            if action not in LETTERS:
                continue
            addr, size, stream = map(int, words[1:])
            name = str(op[4]) if op[0] == "a" and (n >= program.start or lost) else ""
            stack = stacks.setdefault(name, len(stacks))
            if action == "alloc":
                at[addr] = stack
            if n < program.start:
                continue
            last = columns["action"]
            if action == "free_completed" and last and last[-1] == "f" and columns["addr"][-1] == addr:
                last[-1] = "F"  # both at once
                continue
            if action == "alloc":
                known.add(addr)
            told = 0 if action.startswith("free") and addr in known else size
            row = (LETTERS[action], addr, told, stream, stack if op[0] == "a" else 0)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    stored: dict[str, Any] = {
        name: "".join(map(str, column)) if name in LETTERED else column for name, column in columns.items()
    }
    return {"segments": list(_segments(run.segments, at)), **stored}


def _segments(lines: list[list[str]], stacks: dict[int, int]) -> Iterator[list[Any]]:
    segment: list[Any] = []
    for words in lines:
        if words[0] == "segment":
            if segment:
                yield segment
            pool = int(words[8]) % (1 << 32)  # above it counts the programs that the process has run
            segment = [int(words[1]), int(words[2]), int(words[3]), int(words[4] == "large"), int(words[5]), pool, []]
        else:
            state, addr = STATES.index(words[4]), int(words[1])
            segment[6].append([int(words[2]), int(words[3]), state, stacks.get(addr, 0) if state else 0])
    if segment:
        yield segment


def write(path: Path, cases: list[dict[str, Any]]) -> None:
    text = "\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]


def pickled(case: dict[str, Any]) -> bytes:
    """As `torch.cuda.memory._dump_snapshot` writes it."""
    frames = [_frames(name) for name in case["stacks"]]
    settings = dict(part.split(":") for part in case["conf"].split(",") if part)
    divisions = int(settings.get("roundup_power2_divisions", 0))
    return pickle.dumps({
        "segments": [s for k, device in enumerate(case["devices"]) for s in _final(device, k, frames)],
        "device_traces": [list(_events(device, k, frames)) for k, device in enumerate(case["devices"])],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": case["conf"],
            "max_split_size": int(settings.get("max_split_size_mb", 0)) * (1 << 20) or -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": settings.get("expandable_segments") == "True",
            "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False, "pinned_use_cuda_host_register": False,
            "graph_capture_record_stream_reuse": False,
            "roundup_power2_divisions": dict.fromkeys(ZERO, divisions),
        },
        "external_annotations": [],
    })  # fmt: skip


def _frames(name: str) -> list[dict[str, Any]]:
    """The stack "file:line:function>file:line:function", innermost first, below it the frames that PyTorch adds."""
    found = [{"name": "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc", "filename": "??", "line": 0},
             {"name": "_call_impl", "filename": f"{TORCH}/nn/modules/module.py", "line": 1784}]  # fmt: skip
    for part in name.split(">") if name else []:
        file, line, function = part.split(":")
        found.append({"name": function, "filename": f"/home/user/project/{file}", "line": int(line)})
    return found if name else []


def _final(device: dict[str, Any], number: int, frames: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for addr, total, stream, large, expandable, pool, rows in device["segments"]:
        blocks, at = [], addr + BASE + number * STRIDE
        for size, requested, state, stack in rows:
            blocks.append({"address": at, "size": size, "requested_size": requested, "state": STATES[state],
                           "frames": frames[stack]})  # fmt: skip
            at += size
        live = [row for row in rows if row[2]]
        yield {
            "device": number, "address": addr + BASE + number * STRIDE, "total_size": total,
            "allocated_size": sum(row[0] for row in live if row[2] == 1), "active_size": sum(row[0] for row in live),
            "requested_size": sum(row[1] for row in live), "stream": STREAMS[stream],
            "segment_type": "large" if large else "small", "segment_pool_id": (0, pool), "is_expandable": bool(expandable),
            "frames": [], "blocks": blocks,
        }  # fmt: skip


def _events(device: dict[str, Any], number: int, frames: list[list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    time, live = 1783874495854988 + number * 17, dict[int, int]()
    for letter, addr, size, stream, stack in zip(*(device[name] for name in COLUMNS), strict=True):
        time += 23 + size % 97
        if letter == "a":
            live[addr] = size
        for action in [ACTIONS[part] for part in ("fc" if letter == "F" else letter)]:
            nbytes = live.get(addr, size) if action.startswith("free") else size
            where = ("device_free", addr) if action == "oom" else ("addr", addr + BASE + number * STRIDE)
            yield {"action": action, where[0]: where[1], "size": nbytes, "stream": STREAMS[int(stream)], "time_us": time,
                   "compile_context": "N/A", "user_metadata": "", "frames": frames[stack]}  # fmt: skip
