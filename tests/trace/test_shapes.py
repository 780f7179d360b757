"""Do operators' shapes survive as text, as a file, and as a changed trace; and is what is no shape refused?"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder, make_trace
from gpusim.trace.edit import Edit
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.grain import cut
from gpusim.trace.shapes import MOST_LISTED, Shape, TensorList, listed, parse, shape_text, without
from gpusim.trace.stats import describe
from gpusim.trace.trace import ALLOC, OP, Trace

CONV = "16x64x56x56 64x64x3x3 64 -> 16x64x56x56 | stride=1x1 groups=1 layout=nhwc"
DIMS = st.lists(st.integers(0, 2**40), max_size=5).map(tuple)
TENSORS = st.one_of(st.none(), DIMS)
LISTS = st.one_of(st.lists(TENSORS, max_size=MOST_LISTED).map(listed), st.builds(TensorList, st.just(62), st.integers(0, 9)))
ITEMS = st.one_of(TENSORS, LISTS)
PARAMETERS = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True),
                             st.from_regex(r"[a-z0-9.x+,-]{1,8}", fullmatch=True), max_size=4)  # fmt: skip


def traced(*shapes: str | None) -> Trace:
    build = TraceBuilder("t")
    tensor = build.alloc(1024)
    for shape in shapes:
        build.op("mm", [tensor], [tensor], shape=shape)
    return build.finish()


# --- the text ---------------------------------------------------------------------------------------------------------


def test_a_convolution_reads_as_its_tensors_and_parameters() -> None:
    shape = parse(CONV)
    assert shape == Shape(
        ((16, 64, 56, 56), (64, 64, 3, 3), (64,)), ((16, 64, 56, 56),), {"stride": "1x1", "groups": "1", "layout": "nhwc"}
    )
    assert shape.numbers("stride") == (1, 1) and shape.numbers("groups") == (1,) and shape.numbers("dilation") == ()


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("-> 8", Shape((), ((8,),))),
        ("[3: 220] [2x5 - scalar] ->", Shape((TensorList(3, 220), TensorList(3, 11, ((2, 5), None, ()))), ())),
        ("8x4 - scalar 0 -> ?", Shape(((8, 4), None, (), (0,)), None)),
        ("[] -> 8", Shape((TensorList(0, 0, ()),), ((8,),))),
    ],
)
def test_what_an_item_can_be(text: str, wanted: Shape) -> None:
    assert parse(text) == wanted
    assert shape_text(wanted.inputs, wanted.outputs, wanted.parameters) == text


@given(inputs=st.lists(ITEMS, max_size=4), outputs=st.one_of(st.none(), st.lists(ITEMS, max_size=3)), parameters=PARAMETERS)
def test_what_is_written_is_read(inputs: list[Any], outputs: list[Any] | None, parameters: dict[str, str]) -> None:
    made = Shape(tuple(inputs), None if outputs is None else tuple(outputs), parameters)
    assert parse(shape_text(inputs, outputs, parameters)) == made


def test_a_long_list_stands_as_its_sum() -> None:
    assert shape_text([listed([(2, 3)] * MOST_LISTED)], ()) == f"[{' '.join(['2x3'] * MOST_LISTED)}] ->"
    assert shape_text([listed([(2, 3)] * (MOST_LISTED + 1))], ()) == f"[{MOST_LISTED + 1}: {6 * (MOST_LISTED + 1)}] ->"


def test_parameters_can_be_taken_out() -> None:
    assert without("8 -> 8 | dim=0 from=float32 to=bfloat16", ("from", "to")) == "8 -> 8 | dim=0"
    assert without("8 -> 8 | from=float32 to=bfloat16", ("from", "to")) == "8 -> 8"


@pytest.mark.parametrize(
    "text, fault",
    [
        ("16x64 64x8", "lacks its '->'"),
        ("", "lacks its '->'"),
        ("16y64 -> 8", "'16y64', which is no tensor"),
        ("08 -> 8", "'08', which is no tensor"),
        ("-1x4 -> 8", "'-1x4', which is no tensor"),
        ("8 -> 8x", "'8x', which is no tensor"),
        ("8 -> 8 |", "no parameter behind its '|'"),
        ("8 -> 8 | stride", "'stride', where name=value is due"),
        ("8 -> 8 | dim=1 dim=2", "'dim=2', which it said before"),
        ("[8 4 -> 8", "a bracket too many or too few"),
        ("8] -> 8", "a bracket too many or too few"),
        ("[[8] 4] -> 8", "a bracket too many or too few"),
        ("[3: x] -> 8", "'3:', which is no tensor"),
        ("8 -> 8 -> 8", "'->', which is no tensor"),
    ],
)
def test_what_is_no_shape_is_refused(text: str, fault: str) -> None:
    with pytest.raises(TraceError) as error:
        parse(text)
    assert fault in error.value.message


# --- the trace --------------------------------------------------------------------------------------------------------


def test_shapes_are_saved_and_loaded(tmp_path: Path) -> None:
    trace = traced(CONV, None, "8 -> 8", CONV)
    assert trace.shape.tolist() == [0, -1, 1, 0] and trace.shapes == (CONV, "8 -> 8")
    save_trace(trace, tmp_path / "t.npz")
    back = load_trace(tmp_path / "t.npz")
    assert back == trace and back.shapes == trace.shapes and back.shape.tolist() == trace.shape.tolist()
    assert describe(back)["counts"]["shaped"] == 3


def test_a_trace_without_shapes_is_what_it_was_before_there_were_any(tmp_path: Path) -> None:
    plain = traced(None, None)
    assert plain.content_hash == "9e38bd4d9fcdd42ecbf5c2130544ce7a3e23bace2d9022f22cb3e38e410cfc9c"
    named = make_trace("t", {c: getattr(plain, c) for c in ("size", "kind", "arg", "op", "read_start", "read_id", "write_start",
                       "write_id")}, {"op_names": ("mm",), "shapes": ("8 -> 8",)})  # fmt: skip
    assert named.shapes == () and named.content_hash == plain.content_hash
    assert traced("8 -> 8", None).content_hash != plain.content_hash
    save_trace(plain, tmp_path / "t.npz")
    digest = hashlib.sha256((tmp_path / "t.npz").read_bytes()).hexdigest()
    assert digest == "92cbffff57ae4df4405e473c8ca26105c61846b8572b73ff9a8d245f43afc29e"


def test_a_text_that_is_no_shape_is_refused_with_its_operator() -> None:
    with pytest.raises(TraceError, match="operator 1: the shape '8x -> 8' says '8x'"):
        traced("8 -> 8", "8x -> 8")
    with pytest.raises(TraceError, match="operator 0: 'shape' is 4, but 'shapes' has 1 names"):
        make_trace("t", {"size": [8], "kind": [ALLOC, OP], "arg": [0, 0], "op": [0], "shape": [4]},
                   {"op_names": ("mm",), "shapes": ("8 -> 8",)})  # fmt: skip


def test_changed_traces_keep_shapes_and_new_operators_have_none() -> None:
    trace = traced(CONV, "8 -> 8")
    edit = Edit(trace)
    one, tensor = np.ones(1, np.int64), np.zeros(1, np.int64)
    made = edit.add_operators((one, tensor), (one, tensor))
    again = edit.add_operators((one, tensor), (one, tensor), like=np.array([1]))
    edit.insert(trace.events, OP, np.concatenate([made, again]))
    edit.drop_operators(np.array([True, False]))
    changed = edit.finish()
    assert [changed.shapes[s] if s >= 0 else None for s in changed.shape] == ["8 -> 8", None, "8 -> 8"]
    assert cut(trace, 512).shape.tolist() == trace.shape.tolist()


def test_an_operator_says_how_many_times_its_shapes_work_it_does() -> None:
    build = TraceBuilder("t")
    tensor = build.alloc(1024)
    for flops in (8.0, 8.0, 0.0):
        build.op("mm", [tensor], [tensor], flops=flops, read_bytes=4, written_bytes=4, shape="8 -> 8 | dim=0")
    edit = Edit(build.finish())
    edit["flops"][:2] *= 0.5
    edit["read_bytes"][1:] += 8
    once = edit.finish()
    assert [once.shapes[s] for s in once.shape] == ["8 -> 8 | dim=0 scale=0.5"] * 2 + ["8 -> 8 | dim=0 scale=2"]
    edit = Edit(once)
    edit["flops"][0] *= 2
    edit["flops"][1] *= 3
    edit["op"][2] = edit.name("op_names", "add")
    twice = edit.finish()
    assert [twice.shapes[s] if s >= 0 else None for s in twice.shape] == ["8 -> 8 | dim=0", "8 -> 8 | dim=0 scale=1.5", None]


def test_an_operator_of_unknown_work_loses_its_shape_unless_only_types_change() -> None:
    trace = traced("8 -> 8 | dim=0 from=float32 to=bfloat16", "8 -> 8", "4 -> 4")
    for retyped, wanted in ((False, [None, "8 -> 8", "2 -> 2"]), (True, ["8 -> 8 | dim=0", "8 -> 8", "2 -> 2"])):
        edit = Edit(trace)
        edit.retyped = retyped
        edit["read_bytes"][[0, 2]] += 8
        edit["shape"][2] = edit.name("shapes", "2 -> 2")
        changed = edit.finish()
        assert [changed.shapes[s] if s >= 0 else None for s in changed.shape] == wanted


def test_an_operator_like_another_has_its_shape_only_with_its_work() -> None:
    trace = traced("8 -> 8")
    one, tensor = np.ones(1, np.int64), np.zeros(1, np.int64)
    edit = Edit(trace)
    made = edit.add_operators((one, tensor), (one, tensor), like=np.array([0]), flops=2.0)
    edit.insert(trace.events, OP, made)
    assert edit.finish().shape.tolist() == [0, -1]
