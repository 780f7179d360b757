"""MIG: a GPU cut into slices, each a machine with its share of multiprocessors, memory, bandwidth, cache and engines.

A GPU has eight memory slices.  A slice takes some in a row, at the places that `nvidia-smi mig -lgipp` lists, and has as
many eighths of the memory's bandwidth and of the second-level cache; its multiprocessors and memory are as `nvidia-smi mig
-lgip` prints them.  What no source prints is refused.  Slices reach the host over one link, which they share.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

from gpusim.base.errors import GpusimError, ProfileError, nearest, suggest
from gpusim.base.units import TIME, parse
from gpusim.base.yaml.find import names as profiles
from gpusim.machine.mig_times import MEASURED_ON, recut_time
from gpusim.machine.profile import Profile
from gpusim.machine.sampling import with_numbers

SLICES = 8  # of the memory
SEVENTHS = 7  # of the multiprocessors
_FILE = Path(__file__).with_name("data") / "mig_profiles.csv"
_PLACES = {1: (0, 1, 2, 3, 4, 5, 6), 2: (0, 2, 4), 3: (0, 4), 4: (0,), 7: (0,)}  # by the sevenths of a slice
_TIMES = re.compile(r"([1-9]\d?)\s*x\s+(\S+)")
_DOUBLE = (0, 2, 4, 6)  # of a slice of 1g with the memory of 2g


@dataclass(frozen=True)
class Slice:
    """One kind of slice of a GPU.

    name          3g.40gb
    instances     of it that the GPU offers at most
    memory        bytes; None: not published
    processors    None: not published
    engines       copy engines; None: not published
    eighths       of the memory, its bandwidth and the second-level cache
    """

    name: str
    instances: int
    memory: int | None
    processors: int | None
    engines: int | None
    eighths: int
    source: str

    @property
    def places(self) -> tuple[int, ...]:
        """Memory slices at which it may begin."""
        compute = sevenths(self.name)
        return _DOUBLE if compute == 1 and self.eighths == 2 else _PLACES[compute]


def sevenths(name: str) -> int:
    """Of the multiprocessors that a slice has: 3 of 3g.40gb."""
    return int(name.partition("g")[0])


@cache
def _known() -> dict[str, dict[str, Slice]]:
    found: dict[str, dict[str, Slice]] = {}
    with _FILE.open(encoding="utf-8", newline="") as file:
        for r in csv.DictReader(file):
            found.setdefault(r["profile"], {})[r["slice"]] = Slice(
                r["slice"], int(r["instances"]), round(float(r["memory_gib"]) * 2**30) if r["memory_gib"] else None,
                int(r["sm"]) if r["sm"] else None, int(r["copy_engines"]) if r["copy_engines"] else None,
                int(r["memory_slices"]), r["source"],
            )  # fmt: skip
    return found


def slices(gpu: str) -> dict[str, Slice]:
    """The kinds of slices of a GPU by name; empty where it has no MIG, or none is known."""
    return _known().get(gpu, {})


def _offered(gpu: str) -> dict[str, Slice]:
    """Raises ProfileError for a GPU of which no slices are known."""
    if found := slices(gpu):
        return found
    near = [] if gpu in profiles("profile") else nearest(gpu, _known())
    did_you_mean = f"did you mean '{near[0]}'? " if near else ""
    raise ProfileError(f"no MIG slices of '{gpu}' are known", hint=f"{did_you_mean}they are of {', '.join(_known())}")


def find(gpu: str, name: str) -> Slice:
    """This slice of the GPU.  Raises ProfileError for one that the GPU does not offer, or of which not all is published."""
    offered = _offered(gpu)
    if name not in offered:
        raise ProfileError(f"'{gpu}' does not offer the slice '{name}'", hint=suggest(name, offered) or ", ".join(offered))
    found = offered[name]
    blank = [word for word, value in (("memory", found.memory), ("multiprocessors", found.processors)) if value is None]
    if blank:
        full = [one.name for one in offered.values() if one.memory and one.processors]
        said = f"the {' and '.join(blank)} of {name} of '{gpu}' are not published"
        raise ProfileError(said, hint=f"known are {', '.join(full)}")
    return found


def instance(gpu: Profile, name: str) -> Profile:
    """A slice of the GPU as a machine.  Raises ProfileError as `find` does."""
    found = find(gpu.name, name)
    assert found.memory is not None and found.processors is not None, "refused before"
    compute, memory = found.processors / gpu.gpu.sm_count.value, found.eighths / SLICES
    rates = ("bandwidth", "read", "write", "copy", "copy_engine")
    engines = {
        f"copy_engines.{way}": max(1, min(int(getattr(gpu.copy_engines, way).value), found.engines))
        for way in ("h2d", "d2h") if found.engines is not None
    }  # fmt: skip
    return with_numbers(gpu, {
        "gpu.sm_count": found.processors, "gpu.l2": round(gpu.gpu.l2.value * memory), "memory.capacity": found.memory,
        **{f"gpu.peak.{name}": peak.value * compute for name, peak in gpu.gpu.peak.items()},
        **{f"gpu.achieved.{name}": peak.value * compute for name, peak in (gpu.gpu.achieved or {}).items()},
        **{f"memory.{rate}": getattr(gpu.memory, rate).value * memory for rate in rates}, **engines,
    })  # fmt: skip


def arrange(gpu: str, names: Sequence[str]) -> tuple[int, ...]:
    """Where slices of a GPU lie, in the order given: the first memory slice of each.

    Raises ProfileError where they do not fit: each begins where nvidia-smi allows it, and no two overlap.
    """
    wanted = [find(gpu, name) for name in names]
    found = _fit(wanted, range(len(wanted)), 0)
    if found is None:
        sizes = ", ".join(f"{one.name}: {one.eighths} of {SLICES} from {' or '.join(map(str, one.places))}" for one in wanted)
        raise ProfileError(f"{' + '.join(names)} do not fit on one '{gpu}'", hint=sizes)
    return tuple(found[i] for i in range(len(wanted)))


def _fit(wanted: Sequence[Slice], numbers: Sequence[int], taken: int) -> dict[int, int] | None:
    """Where slices of these numbers lie beside the memory slices that are taken; None: they do not fit."""
    if sum(sevenths(one.name) for one in wanted) > SEVENTHS:
        return None

    def put(rest: Sequence[int], taken: int) -> dict[int, int] | None:
        if not rest:
            return {}
        i, one = rest[0], wanted[rest[0]]
        for place in one.places:
            mask = _mask(one, place)
            if not taken & mask and (more := put(rest[1:], taken | mask)) is not None:
                return {i: place, **more}
        return None

    return put(sorted(numbers, key=lambda i: (-wanted[i].eighths, i)), taken)


def beside(gpu: str, lying: Sequence[tuple[str, int]], name: str) -> int | None:
    """The first memory slice at which a slice may begin beside those that stay where they lie; None: there is none.

    Where there are several places, that which leaves most places to slices of any kind.

    lying  (slice, its first memory slice).  Raises ProfileError as `find` does.
    """
    one = find(gpu, name)
    if sum(map(sevenths, (name, *(other for other, _ in lying)))) > SEVENTHS:
        return None
    taken = sum(_mask(find(gpu, other), place) for other, place in lying)

    def left(place: int) -> int:
        after = taken | _mask(one, place)
        return sum(not after & _mask(other, at) for other in slices(gpu).values() for at in other.places)

    free = [place for place in one.places if not taken & _mask(one, place)]
    return max(free, key=left, default=None)


def _mask(one: Slice, place: int) -> int:
    return ((1 << one.eighths) - 1) << place


def changes(
    gpu: str, before: Sequence[str], after: Sequence[str], busy: Sequence[int] = ()
) -> tuple[list[int], dict[int, int]]:
    """What goes (numbers of `before`) and what is made (numbers of `after`, each with its first memory slice).

    busy   numbers of `before` on which programs run
    Those stay, and as many others as can.  Raises GpusimError where a busy one has to go.
    """
    here, wanted = arrange(gpu, before), [find(gpu, name) for name in after]
    arrange(gpu, after)  # refuses a cut that does not fit
    for most in range(min(len(before), len(after)), -1, -1):
        for stay in combinations(range(len(before)), most):
            made = _beside_those_that_stay(wanted, [(before[i], here[i]) for i in stay]) if set(busy) <= set(stay) else None
            if made is not None:
                return [i for i in range(len(before)) if i not in stay], made
    one = min(busy)
    raise GpusimError(
        f"slice {one} ({before[one]}) of '{gpu}' cannot be taken away while a program runs on it",
        hint="end or move the program first; MIG changes idle slices only",
    )


def _beside_those_that_stay(wanted: Sequence[Slice], stay: Sequence[tuple[str, int]]) -> dict[int, int] | None:
    """Where the other slices of a cut lie; None: those that stay are not of it, or leave no place."""
    rest, taken = list(range(len(wanted))), 0
    for name, place in stay:
        same = next((i for i in rest if wanted[i].name == name), None)
        if same is None:
            return None
        rest.remove(same)
        taken |= _mask(wanted[same], place)
    return _fit(wanted, rest, taken)


# ---------------------------------------------------------------- for a user


@dataclass(frozen=True)
class Recut:
    """A GPU cut anew: its slices in rows, how many go and are made, and ns for that, from `low` to `high`; basis: of the time.
    """

    rows: list[dict[str, object]]
    gone: int
    made: int
    ns: float
    low: float
    high: float
    basis: str


def parts(text: str) -> list[str]:
    """The slices of "3g.40gb + 4g.40gb", or of "7 x 1g.10gb".  Raises GpusimError."""
    found: list[str] = []
    for part in text.split("+"):
        times = _TIMES.fullmatch(part.strip())
        found += [times[2]] * int(times[1]) if times else [part.strip()]
    if "" in found or not found:
        raise GpusimError(f"'{text}' has an empty slice", hint="write 3g.40gb + 4g.40gb, or 7 x 1g.10gb")
    return found


def offered(gpu: str) -> list[dict[str, object]]:
    """A row for each kind of slice of the GPU.  Raises ProfileError where none is known."""
    _offered(gpu)
    return [
        {
            "slice": one.name, "at most": one.instances, "multiprocessors": one.processors, "copy engines": one.engines,
            "memory [GiB]": one.memory and one.memory / 2**30, "eighths of bandwidth and L2": one.eighths,
            "begins at": " ".join(map(str, one.places)),
        }
        for one in slices(gpu).values()
    ]  # fmt: skip


def placed(gpu: str, names: Sequence[str]) -> list[dict[str, object]]:
    """A row for each slice of a cut.  Raises ProfileError where it does not fit."""
    rows: list[dict[str, object]] = []
    for name, place in zip(names, arrange(gpu, names), strict=True):
        one = find(gpu, name)
        rows.append({"slice": name, "begins at": place, "eighths": one.eighths, "multiprocessors": one.processors})
    return rows


def recut(gpu: str, before: Sequence[str], after: Sequence[str], busy: str = "", each: str = "") -> Recut:
    """What another cut of the GPU changes.  Raises GpusimError where a busy slice would have to go.

    busy  numbers of `before` on which programs run, with commas between them
    each  time for a slice that goes or is made; "": as was measured on an A100
    """
    numbers = [part.strip() for part in busy.split(",") if part.strip()]
    for number in numbers:
        if not number.isdigit() or int(number) >= len(before):
            said = f"busy slice '{number}' is none of {len(before)}"
            raise GpusimError(said, hint="numbers of the slices in --from, from 0 on")
    gone, made = changes(gpu, before, after, [int(number) for number in numbers])
    rows: list[dict[str, object]] = [
        {"slice": name, "begins at": place, "what": "goes" if i in gone else "stays"}
        for i, (name, place) in enumerate(zip(before, arrange(gpu, before), strict=True))
    ]
    rows += [{"slice": after[i], "begins at": place, "what": "is made"} for i, place in sorted(made.items())]
    if each:
        ns = float(parse(each, TIME)) * (len(gone) + len(made))
        return Recut(rows, len(gone), len(made), ns, ns, ns, "given")
    basis = "measured" if gpu.startswith(MEASURED_ON) else "estimated"
    return Recut(rows, len(gone), len(made), *recut_time(len(gone), len(made)), basis)
