"""The policies' compiled verbs as the island calls them: `as_x(*address)` is the verb whose address stands in `verbs[V_X]`."""

from __future__ import annotations

from gpusim.base.compiled import function_at
from gpusim.engine.state import VERB_SIGNATURES

(
    as_alloc, as_free, as_largest, as_insert, as_touch, as_remove, as_victim, as_score, as_propose, as_note, as_compact,
    as_remap, as_due, as_release,
) = (function_at(signature) for signature in VERB_SIGNATURES)  # fmt: skip
(
    V_ALLOC, V_FREE, V_LARGEST, V_INSERT, V_TOUCH, V_REMOVE, V_VICTIM, V_SCORE, V_PROPOSE, V_NOTE, V_COMPACT, V_REMAP, V_DUE,
    V_RELEASE,
) = range(len(VERB_SIGNATURES))  # fmt: skip
