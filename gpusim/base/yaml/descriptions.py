"""What a model says of its fields: the text under each.

Read from the source when it is asked for: pydantic's `use_attribute_docstrings` reads it whenever a class is made, which
every command would wait for.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, get_args


@cache
def descriptions(model: type) -> dict[str, str]:
    """Field -> its text; a field without one is left out."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if "__pydantic_fields__" not in vars(cls):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        for field, text in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                    found[name] = inspect.cleandoc(said)
    return found


def models(annotation: Any) -> Iterator[type]:
    """The models in an annotation, and those of their fields."""
    for field in getattr(annotation, "__pydantic_fields__", {}).values():
        yield from models(field.annotation)
    if hasattr(annotation, "__pydantic_fields__"):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)
