"""Are the shapes that profilers write of an operator's arguments read as they stand?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.trace.importers.et_nodes import argument_names, written_arguments
from gpusim.trace.importers.profiled_shapes import executed_shape, profiled_shape

DATA = Path(__file__).parents[1] / "data" / "traces"
SOFTMAX = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"
ADD = "aten::add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)"


def kineto(name: str, dims: list[Any], types: list[str], values: list[str] | None = None) -> str | None:
    return profiled_shape(name, {"Input Dims": dims, "Input type": types, **({"Concrete Inputs": values} if values else {})})


def test_a_convolution_of_a_profile() -> None:
    dims = [[16, 3, 32, 32], [8, 3, 3, 3], [], [], [], [], []]
    types = ["float", "float", "", "ScalarList", "ScalarList", "", ""]
    values = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    assert kineto("aten::convolution", [*dims, [], []], [*types, "ScalarList", "Scalar"], values) == (
        "16x3x32x32 8x3x3x3 - -> ? | stride=2x2 padding=1x1 dilation=1x1 transposed=0 groups=1"
    )
    assert kineto("aten::convolution", dims, types) == "16x3x32x32 8x3x3x3 - -> ?"


@pytest.mark.parametrize(
    "name, dims, types, values, text",
    [
        ("aten::mm", [[8, 4], [4, 2]], ["c10::Half", "c10::Half"], None, "8x4 4x2 -> ?"),
        ("aten::add_", [[8], [8], []], ["float", "float", "Scalar"], ["", "", "1"], "8 8 -> ?"),
        ("aten::cat", [[[2, 3], [5, 3]], []], ["TensorList", "Scalar"], ["", "-2"], "[2x3 5x3] -> ? | dim=0"),
        ("aten::_softmax", [[2, 3, 4], [], []], ["float", "Scalar", "Scalar"], ["", "-1", "False"], "2x3x4 -> ? | dim=2"),
        ("aten::mean", [[2, 3], [], []], ["float", "Bool", "None"], None, "2x3 -> ?"),
        ("aten::randn", [[], []], ["ScalarList", "Scalar"], None, None),
        ("aten::mm", [[8, -4], [4, 2]], ["float", "float"], None, None),
        ("aten::mm", [], [], None, None),
    ],
)
def test_other_operators_of_a_profile(name: str, dims: list[Any], types: list[str], values: Any, text: str | None) -> None:
    assert kineto(name, dims, types, values) == text


def test_an_operator_of_an_execution_trace() -> None:
    assert argument_names(SOFTMAX) == ("self", "dim", "half_to_float")
    assert argument_names(ADD) == ("self", "other", "alpha", "out") and written_arguments(ADD) == {3}
    tensor = [1, 2, 0, 12, 4, "cuda:0"]
    assert executed_shape(
        argument_names(SOFTMAX), [tensor, -1, False], ["Tensor(float)", "Int", "Bool"], [[3, 4], [], []], [[3, 4]],
        ["Tensor(float)"],
    ) == "3x4 -> 3x4 | dim=1"  # fmt: skip
    assert executed_shape(("self",), [tensor], ["Tensor(float)"], None, None, None) is None
    assert executed_shape(("size",), [[3]], ["GenericList[Int]"], [[[]]], [[3]], ["Tensor(float)"]) is None


def test_imported_operators_have_shapes() -> None:
    trace = import_trace(DATA / "kineto_v100_resnet50.json.gz", None)
    assert "32x3x224x224 64x3x7x7 -> ?" in {trace.shapes[s] for s in trace.shape if s >= 0}
    trace = import_trace(DATA / "simple_add_et.json.gz", None)
    assert [trace.shapes[s] for s in trace.shape][-1] == "256x256 256x256 -> 256x256"


def test_a_column_of_plain_csv(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    head = "event,tensor,size,name,reads,writes,shape\nalloc,a,64,,,,\nalloc,b,64,,,,\n"
    file.write_text(head + "op,,,mm,a,b,4x4 4x4 -> 4x4\nop,,,mm,a,b,\nop,,,mm,b,a,4x4 4x4 -> 4x4\n")
    trace = import_trace(file, "csv")
    assert trace.shapes == ("4x4 4x4 -> 4x4",) and trace.shape.tolist() == [0, -1, 0]
    file.write_text(head + "op,,,mm,a,b,4x4 4y4 -> 4x4\n")
    with pytest.raises(TraceError, match=r"t\.csv:4: operator 0: the shape '4x4 4y4 -> 4x4' says '4y4', which is no tensor"):
        import_trace(file, "csv")
