"""Does a dump of XLA become the tensors, lifetimes and accesses that it states?  The dumps are real, of JAX on the CPU."""

from __future__ import annotations

import gzip
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.trace.trace import ALLOC, FREE, OP, Trace

DATA = Path(__file__).parents[1] / "data" / "xla"
MLP, BLOCK = DATA / "mlp-buffer-assignment.txt", DATA / "block-buffer-assignment.txt.gz"
PARTS = ("-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt")


def text(main: Path, suffix: str) -> str:
    data = main.with_name(main.name.replace(PARTS[0], suffix)).read_bytes()
    return (gzip.decompress(data) if main.suffix == ".gz" else data).decode()


def live_bytes(trace: Trace) -> np.ndarray:
    size = trace.size[np.clip(trace.arg, 0, trace.tensors - 1)]
    return np.cumsum(np.where(trace.kind == ALLOC, size, np.where(trace.kind == FREE, -size, 0)))


@pytest.mark.parametrize("main", [MLP, BLOCK], ids=["mlp", "block"])
def test_bytes_are_those_that_xla_states(main: Path) -> None:
    trace = import_trace(main)
    ranges = text(main, "-live-range.txt")
    stated = int(re.findall(r"cumulative: (\d+) bytes", ranges)[-1])
    total = int(re.search(r"Total bytes used: (\d+)", text(main, "-buffer-assignment-values.txt"))[1])  # type: ignore[index]
    assert trace.meta["peak_of_values"] == stated and trace.meta["allocated_bytes"] == total
    assert trace.meta["warnings"] == []
    # What lives at once fits what XLA allocated, and nearly fills it.
    assert 0.96 * total < live_bytes(trace).max() <= total


def test_without_merging_each_value_lives_as_long_as_xla_says() -> None:
    trace = import_trace(MLP, in_place=0)
    ranges = text(MLP, "-live-range.txt")
    assert trace.tensors == len(re.findall(r"\{\}:\d+-\d+", ranges)) == 37
    stated = int(re.findall(r"cumulative: (\d+) bytes", ranges)[-1])
    assert live_bytes(trace).max() == stated == 1_972_228


@pytest.mark.parametrize("main", [MLP, BLOCK], ids=["mlp", "block"])
def test_tensors_that_live_at_once_do_not_share_bytes(main: Path) -> None:
    trace = import_trace(main)
    live: dict[int, tuple[int, int]] = {}
    for kind, tensor, addr in zip(trace.kind.tolist(), trace.arg.tolist(), trace.addr.tolist(), strict=True):
        if kind == ALLOC:
            end = addr + int(trace.size[tensor])
            assert all(end <= a or b <= addr for a, b in live.values()), tensor
            live[tensor] = addr, end
        elif kind == FREE:
            del live[tensor]


def test_operators_of_a_training_step() -> None:
    trace = import_trace(MLP)
    # Three layers: a product forwards, two backwards but for the first: 8 of 64 x 256 x 256.
    assert trace.flops.sum() == 8 * 2 * 64 * 256 * 256
    names = [trace.op_names[i] for i in trace.op]
    assert names[:3] == ["ynn_fusion", "add_tanh_fusion", "ynn_fusion"] and names.count("dot") == 3
    assert trace.flops[0] == 2 * 64 * 256 * 256 and trace.flops[1] == 0
    # The first reads x (64 x 256) and a weight (256 x 256), and writes 64 x 256; then the bias is added.
    assert trace.read_bytes[:2].tolist() == [4 * (64 * 256 + 256 * 256), 4 * (64 * 256 + 256)]
    assert trace.written_bytes[:2].tolist() == [4 * 64 * 256] * 2
    assert [trace.modules[i] for i in trace.module[:2]] == ["jit(mlp_step)/jvp()/dot_general", "jit(mlp_step)/jvp()/tanh"]
    sizes = {c: int(trace.size[trace.category == i].sum()) for i, c in enumerate(trace.categories)}
    assert sizes["input"] == 4 * (3 * (256 * 256 + 256) + 2 * 64 * 256)


def test_parameters_given_away_are_updated_in_place() -> None:
    trace = import_trace(BLOCK)
    inputs = np.flatnonzero(trace.category == trace.categories.index("input"))
    written = set(trace.write_id.tolist())
    donated = 4 * 3 * (64 * 192 + 64 * 64 + 2 * 64 * 256 + 64)
    assert sum(int(trace.size[i]) for i in inputs if i in written) == 2 * donated  # parameters and momenta
    assert {int(trace.size[i]) for i in inputs if i not in written} == {4 * 2 * 32 * 64}  # the input


def test_one_file_with_all_sections_as_older_versions_write_it(tmp_path: Path) -> None:
    old = tmp_path / MLP.name
    old.write_text("".join(text(MLP, part) for part in PARTS))
    shutil.copy(DATA / "mlp.txt", tmp_path)
    assert import_trace(old) == import_trace(MLP)
    (tmp_path / "mlp.txt").unlink()
    assert import_trace(old).flops.sum() == 0


HAND = """BufferAssignment:
allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:
 value: <0 p @0> (size=8,offset=0): f32[2]{0}
allocation 1: size 16, preallocated-temp:
 value: <1 a @0> (size=8,offset=8): f32[2]{0}
 value: <2 b @0> (size=8,offset=8): f32[2]{0}
 value: <3 c @0> (size=4,offset=8): f32[]
allocation 2: size 100, maybe-live-out:
 value: <4 far @5> (size=100,offset=0): u8[100]{0:S(5)}

Total bytes used: 124 (124B)

Used values:
<0 p @0>
 uses:
  a, operand 0
 from instruction: %p = f32[2]{0} parameter(0)
<1 a @0>
 uses:
  b, operand 0
  b, operand 1
 from instruction: %a = f32[2]{0} exponential(%p)
<2 b @0>
 uses:
  pause, operand 0
 from instruction: %b = f32[2]{0} add(%a, %a)
<3 c @0>
 uses:
  (none)
 from instruction: ROOT %c = f32[] custom-call(), custom_call_target="norm"
HloLiveRange (max 6):
  InstructionSequence:
    0:p
    1:a
    2:b
    3:pause
    4:c
  BufferLiveRange:
    p{}:0-5
    a{}:1-2
    b{}:2-3
    c{}:4-5
  Live ranges at 2 (peak):
    p: 8 bytes
    a: 8 bytes
    b: 8 bytes
"""


@pytest.mark.hand_worked
def test_a_dump_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "x-buffer-assignment.txt"
    path.write_text(HAND)
    trace = import_trace(path)
    # p lives to the end; b continues a, and c comes after both, at the same place.
    assert trace.kind.tolist() == [ALLOC, ALLOC, OP, OP, FREE, ALLOC, OP] and trace.arg.tolist() == [0, 1, 0, 1, 1, 2, 2]
    assert trace.size.tolist() == [8, 8, 4] and trace.addr.tolist() == [0, 256 + 8, -1, -1, 256 + 8, 256 + 8, -1]
    assert [trace.op_names[i] for i in trace.op] == ["exponential", "add", "custom-call"]
    assert trace.read_id.tolist() == [0, 1] and trace.write_id.tolist() == [1, 1, 2]
    assert trace.read_bytes.tolist() == [8, 8, 0] and trace.written_bytes.tolist() == [8, 8, 4]
    assert (trace.meta["host_bytes"], trace.meta["peak_of_values"], trace.meta["warnings"]) == (100, 24, [])
    apart = import_trace(path, in_place=0)
    assert apart.kind.tolist() == [ALLOC, ALLOC, OP, ALLOC, OP, FREE, FREE, ALLOC, OP] and apart.size.tolist() == [8, 8, 8, 4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("HloLiveRange", "Nothing"), ["live ranges", "-live-range.txt"]),
        (("Used values:", "Values:"), ["what uses the values", "-values.txt"]),
        (("allocation 1:", "allocation 7:"), ["allocation 1 is missing"]),
        (("Total bytes used: 124 (124B)", "Total bytes used: "), ["cannot be read"]),
        (("(size=8,offset=8)", "(size=8,offset=12)"), ["value a ends beyond its allocation 1"]),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, change: tuple[str, str], words: list[str]) -> None:
    path = tmp_path / "x-buffer-assignment.txt"
    whole = HAND.replace(*change)
    path.write_text(whole.split("Nothing")[0] if change[1] == "Nothing" else whole)
    with pytest.raises(TraceError) as error:
        import_trace(path)
    for word in words:
        assert word in str(error.value)


def test_a_peak_that_does_not_add_up_is_doubted(tmp_path: Path) -> None:
    path = tmp_path / "x-buffer-assignment.txt"
    path.write_text(HAND.replace("    a: 8 bytes", "    a: 9 bytes"))
    assert "24 bytes, but XLA states 25" in import_trace(path).meta["warnings"][0]
