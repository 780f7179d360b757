"""Are functions short, and do they take few positional arguments?

At most 80 lines, docstring aside, and eight positional arguments; keyword-only ones are free.  EXCEPTIONS lists the functions
that are longer or take more, with today's number: the list may only shrink.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpusim

PACKAGE = Path(gpusim.__file__).parent
MOST = {"lines": 80, "arguments": 8}

# (file, function, what there is too much of) -> how much
EXCEPTIONS: dict[tuple[str, str, str], int] = {
    ("engine/pages/density.py", "advise", "arguments"): 14,
    ("engine/pages/density.py", "ats", "arguments"): 9,
    ("engine/pages/density.py", "managed", "arguments"): 10,
    ("engine/pages/residency.py", "bring", "lines"): 86,
    ("policies/evict/evolved.py", "evolved", "arguments"): 9,  # a fact each
    ("policies/evict/imitation.py", "imitation", "arguments"): 9,
    ("programs/managed/pattern.py", "segment", "arguments"): 9,
    ("programs/record/substitutes.py", "_attend", "arguments"): 10,
    ("programs/transforms/accumulate.py", "_events", "arguments"): 9,
    ("programs/transforms/scaling.py", "_tainted", "arguments"): 12,
    ("programs/transforms/tensor_parallel.py", "follow", "arguments"): 11,
}


def functions(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions with their qualified names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inside + node.name, node
            yield from functions(node, f"{inside}{node.name}.")
        else:
            yield from functions(node, f"{inside}{node.name}." if isinstance(node, ast.ClassDef) else inside)


def shape(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, int]:
    """Lines without the docstring and decorators, and positional arguments."""
    first = function.body[0]
    told = ast.get_docstring(function, clean=False) is not None
    lines = (function.end_lineno or 0) - function.lineno + 1
    if told:
        lines -= (first.end_lineno or 0) - first.lineno + 1
    return {"lines": lines, "arguments": len(function.args.posonlyargs) + len(function.args.args)}


def too_much() -> dict[tuple[str, str, str], int]:
    """What there is too much of anywhere in the package."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for name, function in functions(ast.parse(file.read_text("utf-8"))):
            for what, number in shape(function).items():
                if number > MOST[what]:
                    found[file.relative_to(PACKAGE).as_posix(), name, what] = number
    return found


@pytest.mark.slow
def test_no_function_is_long_or_takes_many_arguments_but_those_listed() -> None:
    now = too_much()
    grown = {key: number for key, number in now.items() if number > EXCEPTIONS.get(key, 0)}
    assert not grown, "make these smaller"
    shrunk = {key: (number, now.get(key, 0)) for key, number in EXCEPTIONS.items() if now.get(key, 0) < number}
    assert not shrunk, "write the new number into the list, or take out what is good now"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(a, b, /, c, *d, e=1, **f):\n    return a", {"lines": 2, "arguments": 3}),
        ('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n', {"lines": 2, "arguments": 0}),
    ],
)
def test_what_counts(text: str, expected: dict[str, int]) -> None:
    ((_, function),) = functions(ast.parse(text))
    assert shape(function) == expected


def test_functions_inside_classes_and_functions_are_seen() -> None:
    tree = ast.parse("class A:\n    def f(self):\n        def g(): pass\nif True:\n    async def h(): pass\n")
    assert [name for name, _ in functions(tree)] == ["A.f", "A.f.g", "h"]
