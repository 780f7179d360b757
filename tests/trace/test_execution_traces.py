"""Do PyTorch execution traces become the tensors and accesses that they describe, alone and with their Kineto trace?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpusim.base.errors import TraceError
from gpusim.cli.app import app
from gpusim.programs.recordings import import_trace
from gpusim.trace.importers.et_nodes import written_arguments
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE, Trace

DATA = Path(__file__).parents[1] / "data" / "traces"


def told(trace: Trace) -> list[tuple[Any, ...]]:
    """The events as words: ("alloc", bytes), ("free", tensor), (operator, reads, writes), phase."""
    found: list[tuple[Any, ...]] = []
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == ALLOC:
            found.append(("alloc", int(trace.size[arg])))
        elif kind == FREE:
            found.append(("free", arg))
        elif kind == PHASE:
            found.append((trace.phases[arg],))
        elif kind == OP:
            reads, writes = (
                ids[start[arg] : start[arg + 1]].tolist()
                for ids, start in ((trace.read_id, trace.read_start), (trace.write_id, trace.write_start))
            )
            found.append((trace.op_names[trace.op[arg]], reads, writes))
    return found


# --- real traces ---

SIMPLE_ADD = [
    ("fwd",),
    ("alloc", 262144), ("aten.uniform_", [], [0]), ("alloc", 262144), ("aten.uniform_", [], [1]),
    ("alloc", 262144), ("aten.add", [0, 1], [2]), ("free", 2),
    ("alloc", 262144), ("aten.add", [0, 1], [3]), ("free", 0), ("free", 1), ("free", 3),
]  # fmt: skip


def test_schema_1_0_1_alone_and_with_its_kineto_trace() -> None:
    alone = import_trace(DATA / "simple_add_et.json.gz")
    assert told(alone) == SIMPLE_ADD and "kernel times" in alone.meta["lacks"] and (alone.duration == -1).all()
    both = import_trace(DATA / "simple_add_et.json.gz", kineto=DATA / "simple_add_kineto.json.gz")
    assert told(both) == SIMPLE_ADD and both.duration.tolist() == [5000, 5000, 3000, 3000]
    assert "kernel times" not in both.meta["lacks"] and both.meta["streams"] == [7] and not both.meta["warnings"]
    assert both.dtypes == ("float32",)


def test_schema_1_0_2_with_ids_used_again() -> None:
    trace = import_trace(DATA / "chakra_et.json.gz")
    words = told(trace)
    assert words[:12] == [
        ("fwd",), ("alloc", 4), ("aten.copy_", [], [0]), ("alloc", 8),  # to the GPU; what all ranks send, flat
        ("alloc", 4), ("aten.copy_", [1], [2]), ("free", 2), ("alloc", 4), ("aten.copy_", [1], [3]), ("free", 1), ("free", 3),
        ("nccl:all_gather", [0], []),
    ]  # fmt: skip
    assert trace.meta["filled"]["start"].startswith("0 tensors")  # each tensor is seen being made
    assert sum(word[0] == "alloc" for word in words) == sum(word[0] == "free" for word in words) == trace.tensors


# --- worked by hand ---


def node(id: int, parent: int, name: str, inputs: list[Any], outputs: list[Any], schema: str = "") -> dict[str, Any]:
    attrs = [{"name": "rf_id", "value": id}, {"name": "op_schema", "value": schema}]
    return {
        "id": id, "name": name, "ctrl_deps": parent, "inputs": {"values": inputs, "shapes": [], "types": ["Tensor(float)"]},
        "outputs": {"values": outputs, "shapes": [], "types": []}, "attrs": attrs,
    }  # fmt: skip


def tensor(storage: int, elements: int, device: str = "cuda:0", offset: int = 0) -> list[Any]:
    return [1000 + storage, storage, offset, elements, 4, device]


def imported(tmp_path: Path, *nodes: dict[str, Any], **options: Any) -> Trace:
    path = tmp_path / "et.json"
    path.write_text(json.dumps({"schema": "1.0.2-chakra.0.0.4", "pid": 1, "nodes": nodes}, indent=1))
    return import_trace(path, **options)


RELU = "aten::relu(Tensor self) -> Tensor"
ADD_ = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"
COPY_ = "aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)"
VIEW = "aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)"
ADDMM = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
EMPTY = "aten::empty.memory_format(SymInt[] size) -> Tensor"


def test_an_operator_counts_once_and_a_bias_copied_inside_does_not_hide_a_product(tmp_path: Path) -> None:
    bias, wide, x, w, y = tensor(1, 8), tensor(1, 32), tensor(2, 16), tensor(3, 64), tensor(4, 32)
    trace = imported(
        tmp_path,  # children stand before their parents
        node(13, 12, "aten::expand", [bias], [wide], VIEW), node(14, 12, "aten::copy_", [y, wide], [y], COPY_),
        node(12, 11, "aten::addmm", [bias, x, w], [y], ADDMM), node(11, 1, "aten::linear", [x, w, bias], [y], ADDMM),
        node(21, 20, "aten::clamp_min", [y], [tensor(5, 32)], RELU), node(20, 1, "aten::relu", [y], [tensor(5, 32)], RELU),
    )  # fmt: skip
    assert told(trace) == [
        ("alloc", 32), ("alloc", 64), ("alloc", 256),  # bias as it is, not expanded; x; w
        ("fwd",), ("alloc", 128), ("aten.copy_", [0], [3]), ("aten.addmm", [0, 1, 2], [3]),
        ("alloc", 128), ("aten.clamp_min", [3], [4]), ("free", 3), ("free", 4),
    ]  # fmt: skip
    assert trace.read_bytes.tolist() == [32, 352, 128] and trace.written_bytes.tolist() == [128, 128, 128]


def test_an_id_used_again_is_another_tensor_and_parts_of_the_step_are_phases(tmp_path: Path) -> None:
    first, again = tensor(7, 8), tensor(7, 100)
    trace = imported(
        tmp_path,
        node(3, 2, "aten::empty", [[8]], [first], EMPTY), node(2, 1, "aten::empty_like", [], [first], EMPTY),
        node(4, 1, "aten::add_", [first, first], [first], ADD_),
        node(6, 5, "aten::relu", [first], [tensor(8, 8)], RELU), node(5, 1, "autograd::engine::evaluate_function: X", [], []),
        node(7, 1, "aten::empty", [[100]], [again], EMPTY),
        node(9, 8, "aten::add_", [again, tensor(8, 8)], [again], ADD_), node(8, 1, "Optimizer.step#SGD.step", [], []),
        node(10, 1, "aten::relu", [again], [tensor(9, 100)], RELU),
    )  # fmt: skip
    assert told(trace) == [
        ("step0.fwd",), ("alloc", 32), ("aten.add_", [0], [0]),
        ("step0.bwd",), ("alloc", 32), ("aten.relu", [0], [1]), ("free", 0),
        ("step0.opt",), ("alloc", 400), ("aten.add_", [2, 1], [2]), ("free", 1),
        ("step1.fwd",), ("alloc", 400), ("aten.relu", [2], [3]), ("free", 2), ("free", 3),
    ]  # fmt: skip


def test_devices_are_told_apart(tmp_path: Path) -> None:
    devices = ("cuda:0", "cuda:1", "cpu")
    nodes = [node(2 + i, 1, "aten::relu", [tensor(5, 8, d)], [tensor(6, 8, d)], RELU) for i, d in enumerate(devices)]
    with pytest.raises(TraceError, match=r"2 devices: cuda:0, cuda:1 \(choose one"):
        imported(tmp_path, *nodes)
    with pytest.raises(TraceError, match="no tensors of device 4"):
        imported(tmp_path, *nodes, device=4)
    assert imported(tmp_path, *nodes, device=1).meta["device"] == "cuda:1"
    host = imported(tmp_path, nodes[2])
    assert host.tensors == 2 and "no tensors of a GPU" in host.meta["warnings"][0]


@pytest.mark.parametrize(
    ("schema", "positions"),
    [
        (ADD_, {0}), (RELU, set()), (ADDMM, set()), (VIEW, set()), ("", set()),
        ("aten::sort.values(Tensor self, int dim=-1, *, Tensor(a!) values, Tensor(b!) indices) -> (Tensor(a!))", {2, 3}),
        ("aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()", {0}),
    ],
)  # fmt: skip
def test_written_arguments_are_those_marked_in_the_schema(schema: str, positions: set[int]) -> None:
    assert written_arguments(schema) == positions


# --- what does not fit ---


def test_a_kineto_trace_of_another_run_is_refused() -> None:
    with pytest.raises(TraceError, match=r"kineto_mi250.json.gz: this is no recording of the same run: of \d+ operators"):
        import_trace(DATA / "simple_add_et.json.gz", kineto=DATA / "kineto_mi250.json.gz")


def test_a_node_that_is_none_is_named_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_text('{"schema": "1.0.1",\n"nodes": [\n{"id": 1}\n]}')
    with pytest.raises(TraceError, match=":3: the node that ends here"):
        import_trace(path)
    path.write_text('{"schema": "1.0.1",\n"nodes": []}')
    with pytest.raises(TraceError, match="no node has a tensor"):
        import_trace(path)


def test_the_verb_says_what_is_lacking_and_takes_the_kineto_trace(tmp_path: Path) -> None:
    et, out = str(DATA / "simple_add_et.json.gz"), str(tmp_path / "t.npz")
    said = CliRunner().invoke(app, ["import", et, "-o", out]).output
    assert "4 tensors, 13 events, 4 operators" in said
    assert "lacks frees, addresses, flops, kernel times, times and streams." in said and "--with" in said
    said = CliRunner().invoke(app, ["import", et, "--with", str(DATA / "simple_add_kineto.json.gz"), "-o", out]).output
    assert "lacks frees, addresses and flops." in said
