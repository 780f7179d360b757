"""Options whose value may be left out, which typer does not know."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

VALUES = {"--uncertainty": "16"}
"""Option -> the value that stands for none."""


class Optional(TyperCommand):
    """A verb that reads `--uncertainty` like `--uncertainty 16`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments with the values that were left out."""
        whole = []
        for word, following in zip(args, [*args[1:], ""], strict=True):
            whole.append(word)
            if word in VALUES and not following.isdigit():
                whole.append(VALUES[word])
        return super().parse_args(ctx, whole)
