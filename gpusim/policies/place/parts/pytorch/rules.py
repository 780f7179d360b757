"""The parameters of the `pytorch` policy as users write them, and the codes of its `command` verb.  Needs no numba.

    numbers({"conf": "max_split_size_mb:128", "release": "2.13", "device": "lowest"})    what the policy's `state` gets
    commands("max_split_size_mb:64", "2.13")    (code, a, b) for the verb: torch.cuda.memory._set_allocator_settings

Source: c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.cpp, PyTorch 2.11 to 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from gpusim.base.errors import PolicyError, suggest

# What `command(S, code, a, b)` does.  Streams: work on stream a does not finish, or does.  Private pools: pool a (b: on or
# off).  The rest: settings in bytes or 1/10^15, statistics,
# and a recorded heap, laid out again (restore.py).  Answers 0, or -1 where PyTorch raises an error.
(
    HOLD, UNHOLD,
    POOL_NEW, POOL_BEGIN, POOL_END, POOL_RELEASE, POOL_EMPTY, POOL_NO_SPLIT, POOL_ON_OOM,
    SET_DEFAULTS, SET_MAX_SPLIT, SET_MAX_ROUNDING, SET_LARGE_SEGMENT, SET_DIVISIONS, SET_THRESHOLD, SET_EXPANDABLE,
    SET_FRACTION, SET_THROW, SET_RESERVE,
    RESET_PEAKS, RESET_ACCUMULATED,
    LAY_SEGMENT, LAY_RANGE, LAY_PAGES, LAY_BLOCK,
) = range(25)  # fmt: skip

Command = tuple[int, int, int]
DEVICES = ("lowest", "bump", "recorded", "contiguous")  # device.CHOICES; that module needs numba
MIB, SCALE, NEVER = 1 << 20, 10**15, 1 << 62
LARGE_SEGMENT = 20  # MiB
SEGMENT_WORD = "large_segment_size_mb"

# Keys that place nothing: pinned memory of the host, locks, real graph captures.
_WITHOUT_EFFECT = {
    "release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "graph_capture_record_stream_reuse",
    "pinned_use_cuda_host_register", "pinned_use_hip_host_register", "pinned_use_background_threads",
    "pinned_num_register_threads", "pinned_reserve_segment_size_mb", "pinned_free_catch_all",
    "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb",
}  # fmt: skip
_SIZES = {"max_split_size_mb": SET_MAX_SPLIT, "max_non_split_rounding_mb": SET_MAX_ROUNDING}
_SWITCHES = {"expandable_segments": SET_EXPANDABLE, "throw_on_cudamalloc_oom": SET_THROW}
_SINCE = {"throw_on_cudamalloc_oom": (2, 12), "expandable_segments_reserve": (2, 15)}
_KEYS = {
    "max_split_size_mb", "max_non_split_rounding_mb", SEGMENT_WORD, "roundup_power2_divisions",
    "garbage_collection_threshold", "expandable_segments", "per_process_memory_fraction", "backend",
    *_SINCE, *_WITHOUT_EFFECT,
}  # fmt: skip


def numbers(values: Mapping[str, Any]) -> list[float]:
    """The parameters as `state` gets them: the rule of the release, the device's choice, then commands."""
    release, device = str(values["release"]), str(values["device"])
    if device not in DEVICES:
        raise _refusal("device", f"is '{device}'", suggest(device, DEVICES) or "write one of " + ", ".join(DEVICES))
    version = _version(release)
    rule = sum(version >= since for since in ((2, 12), (2, 13), (2, 14), (2, 15)))
    flat = [float(x) for command in commands(str(values["conf"]), release, at_start=True) for x in command]
    return [float(rule), float(DEVICES.index(device)), *flat]


def commands(conf: str, release: str = "2.13", at_start: bool = False) -> list[Command]:
    """A whole settings string as commands.  at_start: with what PyTorch reads only when a process begins."""
    items = list(_items(conf, _version(release)))  # all are read, also those that a later one of the same name replaces
    large = LARGE_SEGMENT
    for text in (value for key, value in items if key == SEGMENT_WORD):
        large = _mib(SEGMENT_WORD, text, 11)
    found = [(SET_LARGE_SEGMENT, large * MIB, 0)] if at_start or SEGMENT_WORD in dict(items) else []
    found.append((SET_DEFAULTS, 0, 0))
    for key, value in items:
        found += _setting(key, value, large, at_start)
    return found


def _setting(key: str, value: str, large: int, at_start: bool) -> Iterator[Command]:
    """One option as commands; `large` is the large_segment_size_mb that it goes with."""
    if key == "backend" and value != "native":
        raise _refusal(key, f"is '{value}'", "this policy is the native one; see the policy cuda_async")
    if key in _SIZES:
        yield _SIZES[key], min(_mib(key, value, large) * MIB, NEVER), 0
    elif key == "roundup_power2_divisions":
        yield from _divisions(value)  # a list leaves the sizes that it does not name as they were
    elif key == "garbage_collection_threshold":
        yield SET_THRESHOLD, _share(key, value, ends=False), 0
    elif key == "per_process_memory_fraction":
        share = _share(key, value, ends=True)
        if at_start:
            yield SET_FRACTION, share, 0
    elif key in _SWITCHES:
        if value not in ("True", "False"):
            raise _refusal(key, f"is '{value}'", "write True or False")
        yield _SWITCHES[key], int(value == "True"), 0
    elif key == "expandable_segments_reserve":
        yield _reserve(value)


def repeated(conf: str) -> list[str]:
    """A sentence for each option that the settings give more than once, with different values."""
    given: dict[str, set[str]] = {}
    for part in re.split(r",(?![^\[]*\])", re.sub(r"\s", "", conf)):
        key, _, value = part.partition(":")
        given.setdefault(key, set()).add(value)
    holds = {"roundup_power2_divisions": "the last that names a size holds for it"}
    return [
        f"{key} is given more than once; as in PyTorch {holds.get(key, 'the last value holds')}"
        for key, values in given.items() if len(values) > 1
    ]  # fmt: skip


def _version(release: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", release)
    if match is None:
        raise _refusal("release", f"is '{release}'", "write a version of PyTorch, as 2.13")
    return int(match[1]), int(match[2])


def _items(conf: str, version: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """(key, value) of each part; blanks mean nothing."""
    for part in re.split(r",(?![^\[]*\])", re.sub(r"\s", "", conf).removesuffix(",")):
        key, colon, value = part.partition(":")
        if not part and not conf.strip():
            return
        if key not in _KEYS:
            by_class = "classes of streams are not modelled" if key == "expandable_segments_reserve_by_class" else ""
            raise _refusal(key, "is not an option", by_class or suggest(key, _KEYS) or "options: " + ", ".join(sorted(_KEYS)))
        if not colon or not value:
            raise _refusal(key, "has no value", f"write {key}:value")
        if version < _SINCE.get(key, version):
            raise _refusal(key, f"came with PyTorch {'.'.join(map(str, _SINCE[key]))}", "give the parameter release")
        yield key, value


def _refusal(option: str, what: str, hint: str) -> PolicyError:
    return PolicyError(f"'{option}' of policy 'pytorch' {what}", hint=hint)


def _mib(key: str, text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit():
        raise _refusal(key, f"is '{text}'", "write a whole number of MiB")
    if int(text) < least:
        limit = f", its {SEGMENT_WORD}" if key != SEGMENT_WORD else ""
        raise _refusal(key, f"is {text}", f"PyTorch takes {least} or more{limit}")
    return int(text)


def _share(key: str, text: str, ends: bool) -> int:
    """A fraction in 1/10^15, of which the quotient is the very same double."""
    try:
        value = Decimal(text)
        inside = 0 <= value <= 1 if ends else 0 < value < 1
    except InvalidOperation:
        inside = False
    if not inside:
        raise _refusal(key, f"is '{text}'", "write a number from 0 to 1" if ends else "write a number between 0 and 1")
    return round(value * SCALE)


def _divisions(text: str) -> Iterator[Command]:
    """One command for each entry that is set: entry i is for sizes from 2^(20 + i) to twice that."""
    key = "roundup_power2_divisions"
    if not text.startswith("["):
        if text:
            if not _power_of_two(text):
                raise _refusal(key, f"is '{text}'", "write a power of two")
            yield from ((SET_DIVISIONS, entry, int(text)) for entry in range(16))
        return
    if text == "[]":
        return
    last = -1
    for item in text.removeprefix("[").removesuffix("]").split(","):
        bound, colon, divisions = item.partition(":")
        if not (text.endswith("]") and colon and (_power_of_two(divisions) or divisions == "0")):
            raise _refusal(key, f"has '{item}'", "write [size in MiB:divisions,...,>:divisions], powers of two")
        if bound == ">":
            entries = range(max(last, 0) + 1, 16)
        elif _power_of_two(bound):
            entry = min(int(bound).bit_length() - 1, 15)
            entries = range(0 if last < 0 else entry, entry + 1)
            last = entry
        else:
            raise _refusal(key, f"has '{item}'", "sizes are powers of two, in MiB")
        yield from ((SET_DIVISIONS, entry, int(divisions)) for entry in entries)


def _power_of_two(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text).bit_count() == 1


def _reserve(text: str) -> Command:
    """Bytes, or a share of the device in 1/10^15."""
    key = "expandable_segments_reserve"
    try:
        value = Decimal(text.removesuffix("G"))
    except InvalidOperation:
        value = Decimal(0)
    if not 0 < value < 10**6:
        raise _refusal(key, f"is '{text}'", "write a share of the device's memory, or gibibytes as 40G")
    if text.endswith("G"):
        return SET_RESERVE, int(value * 2**30), 0
    return SET_RESERVE, 0, round(min(value, Decimal(2)) * SCALE)
