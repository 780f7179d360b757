"""Do kernels that were recorded access by access touch what the recording says, in its order?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unified_by_hand import TINY

from gpusim.base.errors import ConfigError
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.programs.managed.steps import HostTouch, Kernel, ManagedProgram
from gpusim.programs.managed.text import load

MIB = 1 << 20
ARRAYS = "{a: {bytes: 4 MiB, address: 0x7f0000000000}, b: {bytes: 64 KiB, address: 0x7f0000400000}}"


def program(tmp_path: Path, rows: str, arrays: str = ARRAYS) -> ManagedProgram:
    (tmp_path / "accesses.csv").write_text(rows)
    file = tmp_path / "mine.yaml"
    file.write_text(f"arrays: {arrays}\nsteps:\n  - host_write: [a, b]\n  - recording: accesses.csv\n")
    return load(file)


def kernels(p: ManagedProgram) -> list[Kernel]:
    return [s for s in p.steps if isinstance(s, Kernel)]


def touched(k: Kernel) -> list[tuple[str, bool, int, int]]:
    """(array, write, first byte, bytes) of all accesses, thread after thread."""
    found: list[Any] = []
    for a in k.accesses:
        assert a.index is not None
        found += [(t, (a.array, a.write, int(e) * a.bytes, a.bytes)) for t, e in enumerate(a.index) if e >= 0]
    return [what for _, what in sorted(found, key=lambda pair: pair[0])]


def test_addresses_and_offsets_say_the_same(tmp_path: Path) -> None:
    by_address = """# a comment
kernel, address, bytes, access
init, 0x7f0000000000, 128, w
init, 0x7f0000400020, 32, r
sum, 0x7f0000000080, 4, R
init, 0x7f0000001000, 4096, w
"""
    by_offset = """kernel,array,offset,bytes,access
init,a,0,128,w
init,b,0x20,32,r
sum,a,128,4,r
init,a,4096,4096,w
"""
    for rows in (by_address, by_offset):
        first, second, third = kernels(program(tmp_path, rows))
        assert [k.name for k in (first, second, third)] == ["init", "sum", "init"]
        assert touched(first) == [("a", True, 0, 128), ("b", False, 32, 32)]
        assert touched(second) == [("a", False, 128, 32)]  # the sector that holds the four bytes
        assert touched(third) == [("a", True, 4096, 4096)]


def test_a_row_over_several_pages_is_several_accesses(tmp_path: Path) -> None:
    (k,) = kernels(program(tmp_path, "kernel,array,offset,bytes,access\nk,a,4000,8300,r\n"))
    pieces = touched(k)
    assert [p[2] // 4096 for p in pieces] == [0, 1, 2, 3]
    assert pieces[1] == ("a", False, 4096, 4096) and pieces[3] == ("a", False, 12288, 32)
    assert all(first <= 4000 or first >= 4096 for _, _, first, _ in pieces) and pieces[0][2] <= 4000


def test_warps_do_their_rows_one_after_the_other(tmp_path: Path) -> None:
    rows = "".join(f"k,a,{4096 * p},128,r,{w}\n" for p, w in ((0, 7), (9, 3), (1, 7)))
    (k,) = kernels(program(tmp_path, "kernel,array,offset,bytes,access,warp\n" + rows))
    assert (k.grid, k.block, k.steps) == ((2, 1), (1, 1), (2, 1))
    assert k.accesses[0].index is not None and k.accesses[0].index.tolist() == [0, 32, 288, -1]


def test_the_model_touches_each_recorded_page_once(tmp_path: Path) -> None:
    pages = np.random.default_rng(1).permutation(1024)[:300]
    rows = "kernel,array,offset,bytes,access\n" + "".join(f"k,a,{4096 * p},32,{'w' if p % 3 else 'r'}\n" for p in pages)
    p = program(tmp_path, rows)
    r = simulate_uvm(p.arrays, p.steps, TINY, {"uvm_perf_prefetch_enable": 0})
    counts = r.steps[-1].counts[1]
    assert (counts["touches"], counts["faults"], counts["touched_bytes"]) == (300, 300, 300 * 32)
    reads = sum(p % 3 == 0 for p in pages.tolist())
    assert r.steps[-1].ns > 300 * 4096  # each page came over the link, at 1 byte/ns
    back = simulate_uvm(p.arrays, [*p.steps, HostTouch("a", write=False)], TINY, {"uvm_perf_prefetch_enable": 0})
    assert back.steps[-1].counts[0]["came"].sum() == 300 and reads > 50


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("kernel,array,offset,bytes,access\nk,a,4194300,8,r\n",
         "accesses.csv:2: k: segmentation fault at byte 4,194,304 of 'a', which has 4,194,304"),
        ("kernel,array,offset,bytes,access\nk,aa,0,8,r\n", "accesses.csv:2: no array is called 'aa'"),
        ("kernel,address,bytes,access\nk,0x10,8,r\n", "accesses.csv:2: k: segmentation fault at 0x10, which is in no array"),
        ("kernel,address,bytes,access\nk,0x7f0000000000,8,rw\n", "accesses.csv:2: unknown entry 'rw'"),
        ("kernel,address,bytes\nk,0x7f0000000000,8\n", "accesses.csv:1: the column 'access' is missing"),
        ("kernel,address,bytes,access\nk,here,8,r\n", "accesses.csv:2: 'here' is not an address"),
        ("kernel,array,offset,bytes,access\nk,a,0,0,r\n", "accesses.csv:2: an access of 0 bytes"),
        ("kernel,array,offset,bytes,access\nk,a,-1,4,r\n", "accesses.csv:2: k: segmentation fault at byte -1 of 'a'"),
        ("kernel,array,offset,bytes,access\nk,a,0,nan,r\n", "accesses.csv:2: 'nan' in column 'bytes' is not a whole number"),
        ("kernel,array,offset,bytes,access\n,a,0,4,r\n", "accesses.csv:2: the row names no kernel"),
        ("kernel,array,offset,bytes,access\nk,a,0\n", "accesses.csv:2: the line has 3 values, but there are 5 columns"),
        ("kernel,array,offset,bytes,access\n", "accesses.csv: has no accesses"),
        ("\n", "accesses.csv: is empty"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_at_its_line(tmp_path: Path, rows: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        program(tmp_path, rows)
    assert told in error.value.problems[0].message and error.value.problems[0].line == 4


def test_a_missing_recording_and_one_without_addresses(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no array has an address"):
        program(tmp_path, "kernel,address,bytes,access\nk,0x10,8,r\n", "{a: 1 MiB, b: 1 MiB}")
    (tmp_path / "mine.yaml").write_text("arrays: {a: 1 MiB}\nsteps: [{recording: nothing.csv}]\n")
    with pytest.raises(ConfigError, match=r"nothing.csv: cannot be read"):
        load(tmp_path / "mine.yaml")
