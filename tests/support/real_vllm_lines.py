"""python -m real_vllm_lines FOLDER < cases    which lines of the real scheduler's files the cases execute, by family

Writes JSON: {file: {"lines": executable lines, "reached": {line: {family: cases}}}}.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from real_vllm import RealCase, VllmModules

FILES = (
    "sched/scheduler.py", "sched/request_queue.py", "sched/utils.py", "kv_cache_manager.py", "kv_cache_coordinator.py",
    "single_type_kv_cache_manager.py", "block_pool.py", "kv_cache_utils.py",
)  # fmt: skip


class Traced:
    """Lines of some files that have been executed since `clear`."""

    def __init__(self, folder: Path) -> None:
        self.files = {str(folder / "v1" / "core" / name): name for name in FILES}
        self.lines: set[tuple[str, int]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        name = self.files.get(frame.f_code.co_filename)
        if name is None:
            return None
        found = self.lines

        def local(frame: FrameType, event: str, _: Any) -> Any:
            found.add((name, frame.f_lineno))
            return local

        return local


def executable(file: Path) -> set[int]:
    """Lines of the functions in a file that Python could execute, those of `def` aside."""
    lines: set[int] = set()

    def gather(code: CodeType, inside: bool) -> None:
        if inside:
            lines.update(line for _, _, line in code.co_lines() if line is not None and line != code.co_firstlineno)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                gather(constant, True)

    gather(compile(file.read_text("utf-8"), str(file), "exec"), False)
    return lines


def main(folder: Path) -> None:
    """Play all cases, each with its lines traced."""
    m, traced = VllmModules(str(folder)), Traced(folder)
    reached: dict[str, dict[int, dict[str, int]]] = {name: defaultdict(lambda: defaultdict(int)) for name in FILES}
    for line in sys.stdin:
        case = json.loads(line)
        played = RealCase(case, m, False)
        traced.lines.clear()
        sys.settrace(traced)
        played.play()
        sys.settrace(None)
        for name, number in traced.lines:
            reached[name][number][case["family"]] += 1
    json.dump(
        {
            name: {"lines": sorted(executable(folder / "v1" / "core" / name)), "reached": reached[name]}
            for name in FILES
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
