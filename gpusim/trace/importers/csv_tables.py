"""What the compiled reader of plain CSV works with: numbers that stand for words, and the layout of its tables."""

from __future__ import annotations

from typing import Any, NamedTuple

# What a column may be, in the order of plain_csv's columns.
(
    EVENT, TENSOR, SIZE, STREAM, TIME, CATEGORY, ADDR, NAME, READS, WRITES, FLOPS, READ_BYTES, WRITTEN_BYTES, DTYPE, MODULE,
    DURATION, SHAPE, ROLES,
) = range(18)  # fmt: skip

# Why parse came back.
(
    DONE, FULL, LONG_LINE, VALUES, UNKNOWN_EVENT, NOT_WHOLE, TOO_LARGE, NO_TENSOR, LIVE_TWICE, NOT_LIVE, NEGATIVE, FALLS, SUM,
    MANY_STREAMS,
) = range(14)  # fmt: skip

# Fields of `state`: AT the byte and LINE the line that come next; ROLE, FROM, TO the field at fault; rows filled so far;
# IN_PHASE the phase that began last; ORIGIN and LATEST of the times, -1 before the first.
(
    AT, LINE, ROLE, FROM, TO, EVENTS, TENSORS, OPS, READ_IDS, WRITE_IDS, SYMBOLS, TEXT, ODD, IN_PHASE, ORIGIN, LATEST, STATE,
) = range(17)  # fmt: skip

# Columns of `symbols`, one row for each name and one more.  HASH: of the name and its space.  START: where the name stands
# in `text`, up to the next one's.  VALUE: of a tensor's name the id of the live one, or GONE; of others the index among the
# names of its space.  BYTES and STAMP of tensors: the size, and the list that mentioned it last.
HASH, START, VALUE, BYTES, STAMP, SYMBOL = range(6)
GONE = -1
TENSOR_NAMES, CATEGORIES, OP_NAMES, PHASES, DTYPES, MODULES, SHAPES, SPACES = range(8)
HASH_SPACES = 8  # a hash ends in its space
UNNAMED = -2  # stands for the default name
NEW = 5  # symbols that a line brings at most

LONGEST_LINE = 1 << 20


class CsvTables(NamedTuple):
    """What parse works with; int64 unless said otherwise.  The columns of a trace are filled from `state`'s counts on."""

    state: Any
    roles: Any    # what each column of the file is
    first: Any    # of each role, where its field of this line begins and ends; empty where there is no such column
    last: Any
    slots: Any    # hash table of symbols, -1 empty
    symbols: Any
    text: Any     # the names, one after the other
    names: Any    # of each space, how many names it has
    odd: Any      # flops that Python has to read: operator, from, to, line
    kind: Any
    arg: Any
    stream: Any
    time: Any
    addr: Any
    bytes: Any
    size: Any
    category: Any
    op: Any
    module: Any
    dtype: Any
    flops: Any
    read_bytes: Any
    written_bytes: Any
    duration: Any
    phase: Any
    shape: Any
    read_start: Any
    write_start: Any
    read_id: Any
    write_id: Any
