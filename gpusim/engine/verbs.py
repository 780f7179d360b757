"""The policies' compiled verbs as the island calls them: `as_x(*address)` is the verb whose address stands in `verbs[V_X]`."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import function_at
from gpusim.engine.state import VERB_SIGNATURES, PolicyVerbs


def _called(name: str) -> tuple[Any, int]:
    return function_at(getattr(VERB_SIGNATURES, name)), PolicyVerbs._fields.index(name)


as_alloc, V_ALLOC = _called("alloc")
as_free, V_FREE = _called("free")
as_largest, V_LARGEST = _called("largest")
as_insert, V_INSERT = _called("insert")
as_touch, V_TOUCH = _called("touch")
as_remove, V_REMOVE = _called("remove")
as_victim, V_VICTIM = _called("victim")
as_score, V_SCORE = _called("score")
as_propose, V_PROPOSE = _called("propose")
as_note, V_NOTE = _called("note")
as_compact, V_COMPACT = _called("compact")
as_remap, V_REMAP = _called("remap")
as_due, V_DUE = _called("due")
as_release, V_RELEASE = _called("release")
