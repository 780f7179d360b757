"""The study of a program on single GPUs and, where a machine of several is known or named, over its GPUs with all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusim.base.errors import GpusimError
from gpusim.machine import words
from gpusim.machine.profile import Profile
from gpusim.machine.topology import build
from gpusim.machine.topology.topology import Topology
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.studies.capacity import ranks
from gpusim.studies.capacity.remedies import GPUS, FitRemedy, default, within
from gpusim.studies.capacity.settings import USUAL, AllocatorSettings
from gpusim.studies.capacity.study import CapacityStudy, StudyExtent, silent, study
from gpusim.studies.capacity.times import NO_TABLES, Tables
from gpusim.trace.trace import Trace

FEWER = (GPUS, 4, 2)
"""GPUs that a machine is searched for where no number is asked for."""


@dataclass(frozen=True)
class AskedMachines:
    """Where the program is to fit.

    profiles  of single GPUs, those of `whole` among them
    gpus      of each, from "4 x l40s"; None: no number is said
    whole     machines of several GPUs by the word for each, all of which are used
    """

    profiles: tuple[Profile, ...]
    gpus: int | None = None
    whole: Mapping[str, Topology] = field(default_factory=dict)

    @property
    def count(self) -> int | None:
        """GPUs for which something is to be tried; None: no number is said, or several."""
        counts = {len(machine.gpus) for machine in self.whole.values()}
        return self.gpus if not counts else counts.pop() if len(counts) == 1 and self.gpus is None else None


def asked_machines(said: Sequence[str | Profile | Topology], profile: Callable[[str], Profile] = words.load) -> AskedMachines:
    """What these words mean: profiles, "4 x l40s", machines of several GPUs as `gpusim machines` takes them.

    Raises ProfileError for a word that means none, GpusimError for different numbers of GPUs.
    """
    one, whole, counts = list[Profile](), dict[str, Topology](), set[int]()
    for word in said:
        machine = _whole(word)
        if machine is not None:
            whole[word if isinstance(word, str) else machine.name] = machine
            one.append(machine.profile(machine.gpus[0]))
        elif isinstance(word, str):
            counts.add(words.counted(word)[0])
            one.append(profile(word))
        elif isinstance(word, Profile):
            counts.add(1)
            one.append(word)
    if len(counts) > 1:
        numbers = " and ".join(map(str, sorted(counts)))
        raise GpusimError(f"these machines are of {numbers} GPUs", hint="ask for one number of GPUs at a time")
    gpus = next((count for count in counts if count > 1), None)
    return AskedMachines(tuple({each.name: each for each in one}.values()), gpus, whole)


def _whole(word: str | Profile | Topology) -> Topology | None:
    """The machine of several GPUs that a word means; None where it means one GPU, or several without a machine."""
    if not isinstance(word, str):
        return word if isinstance(word, Topology) else None
    file = build.file_of(word)
    return None if file is None else build.load_found(file, word)


def study_all(
    trace: Trace, asked: AskedMachines, tries: Sequence[FitRemedy] = (), progress: Callable[[int, int], object] = silent,
    settings: AllocatorSettings = USUAL, own: Registry = SHIPPED, tables: Tables = NO_TABLES,
) -> CapacityStudy:  # fmt: skip
    """Asks for each GPU alone, then for several of them as ranks.

    tries   what the user has named; none: what the program allows
    tables  as in `study`; ranks are simulated on machines without one

    Raises GpusimError for a remedy that takes more GPUs than there are.
    """
    tried = within(tries or default(trace, asked.count or GPUS), asked.count)
    known = {p.name: one for p in asked.profiles if p.name not in tables and (one := _known(p, asked.gpus)) is not None}
    simulated = frozenset(known) | {machine.profile(machine.gpus[0]).name for machine in asked.whole.values()}
    found = study(trace, asked.profiles, tried, progress, settings, own, tables, StudyExtent(apart=simulated))
    if found.timeless:
        return found
    answers = []
    for word, machine, gpus in _over(asked, known, found):
        layouts = ranks.named(tries, trace, machine, gpus) if tries else ()
        answer = ranks.on_ranks(trace, machine, gpus, settings, own, layouts)
        answers.append(replace(answer, machine=word))
    return replace(found, ranks=tuple(answers))


def _known(profile: Profile, gpus: int | None) -> tuple[Topology, int] | None:
    """A machine of the catalogue with this GPU, and how many of them are used."""
    for count in FEWER if gpus is None else (gpus,):
        if count > 1 and (machine := ranks.machine_with(profile, count)) is not None:
            return machine, count
    return None


def _over(
    asked: AskedMachines, known: dict[str, tuple[Topology, int]], found: CapacityStudy
) -> Iterator[tuple[str, Topology, int]]:
    """The machines that are simulated: those that are named, and for GPUs on which the program does not fit what is known."""
    named = {machine.profile(machine.gpus[0]).name for machine in asked.whole.values()}
    yield from ((word, machine, len(machine.gpus)) for word, machine in asked.whole.items())
    for answer in found.answers:
        name = answer.profile.name
        if name in known and name not in named and (asked.gpus is not None or not answer.fits):
            machine, gpus = known[name]
            yield machine.name, machine, gpus
