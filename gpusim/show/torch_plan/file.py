"""A plan as one Python file: what it is in the docstring, then imports, constants and the code of its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from pprint import pformat
from textwrap import fill
from typing import Any

from gpusim.show.torch_plan.plan import TorchPlan

PARTS = Path(__file__).with_name("parts")
WIDTH = 116


def written(plan: TorchPlan, said: Iterable[str]) -> str:
    """The file's text; `said` are lines about where the plan comes from."""
    parts = [_Part(name, values) for name, values in plan.parts.items()]
    wanted = {line for part in parts for line in part.imports}
    wanted |= {"from typing import Any"} if plan.apply or plan.around else set()
    if plan.around:
        wanted |= {"from contextlib import ExitStack, contextmanager", "from collections.abc import Iterator"}
    foreign = sorted((line for line in wanted if " torch" in line), key=_order)
    imports = [*sorted(wanted - {*foreign}, key=_order), *([""] if foreign else []), *foreign]
    constants = [line for part in parts for line in part.constants]
    if plan.simulated:
        constants.append(_assigned("SIMULATED", plan.simulated) + "  # of one step")
    code = [text for part in parts for text in part.code]
    head = [_docstring(plan, said), "from __future__ import annotations", "\n".join(imports), "\n".join(constants)]
    body = "\n\n\n".join([*code, *_entries(plan)])
    return "\n\n".join(text for text in head if text) + f"\n\n\n{body}\n"


def _docstring(plan: TorchPlan, said: Iterable[str]) -> str:
    lines = ["What a simulated run needs of the program.", ""]
    if plan.apply:
        lines.append("    model = apply(model)                 before the optimizer is made")
    if plan.around:
        lines.append("    with plan(model, *inputs):           inputs: what the program gives to model and loss")
        lines.append("        loss = ...                       forward and loss; backward is outside")
    notes = [fill(f"By hand: {note}.", WIDTH) for note in plan.notes]
    text = "\n".join([*lines, *([""] if notes else []), *notes, "", *said])
    return f'"""{text.replace(chr(92), chr(92) * 2)}\n"""'


def _entries(plan: TorchPlan) -> list[str]:
    """The two functions that a program calls."""
    made = []
    if plan.apply:
        calls = "\n".join(f"    {name}(model)" for name in plan.apply)
        made.append(f'def apply(model: Any) -> Any:\n    """Change the model; answers it."""\n{calls}\n    return model')
    if plan.around:
        enters = "\n".join(f"        stack.enter_context({call})" for call in plan.around)
        made.append(
            "@contextmanager\ndef plan(model: Any, *inputs: Any) -> Iterator[None]:\n"
            f'    """Around forward and loss."""\n    with ExitStack() as stack:\n{enters}\n        yield'
        )
    return made


class _Part:
    """A file of `parts` with other values: its imports, constants and code as text."""

    def __init__(self, name: str, values: Mapping[str, Any]) -> None:
        text = PARTS.joinpath(f"{name}.py").read_text("utf-8")
        self.imports: list[str] = []
        self.constants: list[str] = []
        self.code: list[str] = []
        left = dict(values)
        for node in ast.parse(text).body[1:]:
            source = _source(text, node)
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports += [source] if "__future__" not in source else []
            elif (target := _constant(node)) in left:
                self.constants.append(_assigned(target, left.pop(target)))
            elif target:
                self.constants.append(source)
            else:
                self.code.append(source)
        assert not left, f"{name} has no constant {next(iter(left), '')}"


def _order(line: str) -> tuple[bool, str]:
    return not line.startswith("import"), line


def _assigned(name: str, value: Any) -> str:
    """The assignment, over several lines where one is too long."""
    line = f"{name} = {value!r}"
    if len(line) <= WIDTH:
        return line
    opening, closing = ("{", "}") if isinstance(value, dict) else ("(", ")")
    body = pformat(value, width=WIDTH - 4, compact=True)[1:-1].replace("\n ", "\n    ")
    return f"{name} = {opening}\n    {body}{',' if not body.endswith(',') else ''}\n{closing}"


def _source(text: str, node: ast.stmt) -> str:
    """The lines of a statement, its decorators and the comment behind it among them."""
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])


def _constant(node: ast.stmt) -> str:
    """The name that a module's assignment in capitals gives."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    return target.id if isinstance(target, ast.Name) and target.id.isupper() else ""
