"""The policies' compiled verbs as the island calls them: `as_x(*address)` is the verb whose address stands in `verbs[V_X]`."""

from __future__ import annotations

from gpusim.engine.state import PolicyVerbs
from gpusim.policies.verb_table import called

as_alloc, V_ALLOC = called(PolicyVerbs, "alloc")
as_free, V_FREE = called(PolicyVerbs, "free")
as_largest, V_LARGEST = called(PolicyVerbs, "largest")
as_insert, V_INSERT = called(PolicyVerbs, "insert")
as_touch, V_TOUCH = called(PolicyVerbs, "touch")
as_remove, V_REMOVE = called(PolicyVerbs, "remove")
as_victim, V_VICTIM = called(PolicyVerbs, "victim")
as_score, V_SCORE = called(PolicyVerbs, "score")
as_propose, V_PROPOSE = called(PolicyVerbs, "propose")
as_note, V_NOTE = called(PolicyVerbs, "note")
as_compact, V_COMPACT = called(PolicyVerbs, "compact")
as_remap, V_REMAP = called(PolicyVerbs, "remap")
as_due, V_DUE = called(PolicyVerbs, "due")
as_release, V_RELEASE = called(PolicyVerbs, "release")
as_pool, V_POOL = called(PolicyVerbs, "pool")
