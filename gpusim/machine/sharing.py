"""What the activities of one device share: words of a run, each of which brings in one kind of contention.

    sms      kernels that run at once divide the multiprocessors, by stream priority and then in the order of their starts
    memory   kernels and copies divide the bandwidth of the device's memory
    engines  the program's own copies take turns in the copy engines

Without a word its kind is as if each activity had the device to itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.base.errors import GpusimError, suggest

SMS, MEMORY, ENGINES = WORDS = ("sms", "memory", "engines")
NOTHING = "none"


def parse(value: object) -> tuple[str, ...]:
    """The words of a list or of a text with commas, in the order of WORDS; `none`: no word.  Raises GpusimError."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable) or isinstance(parts, dict):
        raise GpusimError(f"{value!r} is no list of what is shared", hint=f"write {', '.join(WORDS)}, or {NOTHING}")
    said = [str(part).strip() for part in parts]
    if said in ([], [NOTHING]):
        return ()
    for word in said:
        if word not in WORDS:
            alone = word == NOTHING
            raise GpusimError(
                f"'{NOTHING}' stands alone" if alone else f"'{word}' is nothing that is shared",
                hint="leave out the other words" if alone else suggest(word, (*WORDS, NOTHING)),
            )
    return tuple(word for word in WORDS if word in said)


def write(words: Iterable[str]) -> str:
    """The words as one text."""
    return ", ".join(words) or NOTHING


def percentage(value: object, name: str = "active_thread_percentage") -> int:
    """CUDA_MPS_ACTIVE_THREAD_PERCENTAGE, `name` for the user: a whole number from 1 to 100.  Raises GpusimError."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 100:
        raise GpusimError(f"{name} is {value!r}, not a whole number from 1 to 100")
    return value
