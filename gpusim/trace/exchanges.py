"""What GPUs exchange in an operator, as one text: "all_reduce tensor 104857600"; "send pipeline+1 8 + receive pipeline-1 8".

    kind    one of KINDS, or send or receive
    group   the ranks that take part: a name ("tensor", "data"), or their numbers ("0,1,2,3"); of send and receive the other
            one, as steps along a name ("pipeline+1", "pipeline-1") or a number; what is sent along one name
            ("pipeline_forward+1") is not received along another ("pipeline_backward-1"), as over two communicators; numbers may
            end with the name of their communicator ("0,1,2,3@7") where the same ranks have several
    bytes   of the whole: what an all-reduce sums and a broadcast sends, what an all-gather has made in the end, what a
            reduce-scatter begins with, what a rank has before an all-to-all; of send and receive what is sent

Sends and receives with " + " between them are a batch, as between ncclGroupStart and ncclGroupEnd: one operator, which ends
when all of them have.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gpusim.base.errors import TraceError, shown, suggest

SEND, RECEIVE = "send", "receive"
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "barrier")
_GROUP = re.compile(r"[a-z]\w*([+-]\d+)?|\d+(,\d+)*(@[\w.:-]+)?")
_ALONG = re.compile(r"([a-z]\w*)[+-]\d+")
BATCHED = " + "
_HINT = "an exchange is written as 'all_reduce tensor 104857600'"


class Exchange(NamedTuple):
    """Kind, group and bytes of a text."""

    kind: str
    group: str
    size: int


def communicator(group: str) -> str:
    """The name of a group's communicator, of steps along a name that name; "" where there is one for these ranks."""
    along = _ALONG.fullmatch(group)
    return along[1] if along else group.partition("@")[2]


def exchange_text(kind: str, group: str, size: int) -> str:
    """The text of an exchange.  Raises TraceError for what is none."""
    text = f"{kind} {group} {size}"
    parse_exchange(text)
    return text


def parse_exchange(text: str) -> Exchange:
    """What a text without a batch says.  Raises TraceError."""
    words = text.split(" ")
    if len(words) != 3:
        raise TraceError(f"'{shown(text)}' is no exchange", hint=_HINT)
    kind, group, size = words
    if kind not in (*KINDS, SEND, RECEIVE):
        raise TraceError(f"'{shown(kind)}' is no kind of exchange", hint=suggest(kind, (*KINDS, SEND, RECEIVE)) or _HINT)
    if not _GROUP.fullmatch(group):
        raise TraceError(f"'{shown(group)}' is no group of ranks", hint=_HINT)
    if not re.fullmatch(r"\d{1,17}", size):
        raise TraceError(f"'{shown(size)}' is no number of bytes", hint=_HINT)
    return Exchange(kind, group, int(size))


def parse_exchanges(text: str) -> tuple[Exchange, ...]:
    """What a text says, of a batch each part.  Raises TraceError."""
    found = tuple(parse_exchange(part) for part in text.split(BATCHED))
    for one in found if len(found) > 1 else ():
        if one.kind not in (SEND, RECEIVE):
            raise TraceError(f"'{shown(text)}' is no exchange: a batch has sends and receives, and no {one.kind}", hint=_HINT)
    return found
