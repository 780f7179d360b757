"""Attributes of PyTorch that are replaced while a recording runs."""

from __future__ import annotations

import contextlib
from typing import Any


class Patches:
    """Attributes that are replaced for a while."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()

    def set(self, owner: Any, name: str, value: Any) -> None:
        own = vars(owner)
        if name in own:
            self._undo.callback(setattr, owner, name, own[name])
        else:
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)

    def close(self) -> None:
        self._undo.close()


def answer(value: Any) -> Any:
    return lambda *_, **__: value
