"""Write weights as a module of the package: a file that runs, keys of runs and diffs see."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2] / "gpusim" / "policies"
DIGITS = 6  # of each number: what is shipped is what the policies have


def rounded(weights: list[Any]) -> list[Any]:
    """The numbers as they will be read again."""
    return [np.vectorize(lambda x: float(f"{x:.{DIGITS}g}"))(w) for w in weights]


def network(path: str, said: str, trainings: list[list[Any]]) -> None:
    """Keep several trainings as a DenseNetwork named WEIGHTS."""
    networks(path, said, "network", "DenseNetwork", ("first", "shift", "second", "last"), trainings)


def networks(path: str, said: str, module: str, kind: str, names: tuple[str, ...], trainings: list[list[Any]]) -> None:
    """Keep several trainings as such a tuple of arrays, one for each name, named WEIGHTS."""
    arrays = [np.stack([rounded(one)[k] for one in trainings]) for k in range(len(names))]
    body = ",\n".join(f"    {name}=np.array({_text(a)})" for name, a in zip(names, arrays, strict=True))
    _write(path, said, f"\nfrom gpusim.policies.{module} import {kind}\n", f"WEIGHTS = {kind}(\n{body},\n)")


def table(path: str, said: str, array: Any, name: str = "WEIGHTS") -> None:
    """Keep an array, a row for each seed."""
    _write(path, said, "", f"{name} = np.array({_text(array)})")


def _write(path: str, said: str, imports: str, body: str) -> None:
    text = f'"""{fill(said, 116)}\n"""\n\nfrom __future__ import annotations\n\nimport numpy as np\n{imports}\n{body}\n'
    (ROOT / path).write_text(text, "utf-8")


def _text(array: Any) -> str:
    """Rows of numbers, each level of brackets on lines of its own."""
    if array.ndim == 1:
        return "[" + fill(", ".join(f"{x:.{DIGITS}g}" for x in array), 112, subsequent_indent=" " * 8) + "]"
    return "[\n        " + ",\n        ".join(_text(row) for row in array) + "\n    ]"
