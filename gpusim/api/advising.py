"""What would help a program: the answer behind `gpusim advise`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.api.frames import frame
from gpusim.api.inputs import machine_of
from gpusim.api.showing import preformatted
from gpusim.base.units import parse_bytes
from gpusim.base.yaml.find import find
from gpusim.base.yaml.values import machine as named
from gpusim.machine import words
from gpusim.machine.profile import Profile
from gpusim.policies import registry
from gpusim.studies.advice import inputs, report, study
from gpusim.studies.advice.answer import RankedAdvice
from gpusim.studies.advice.inputs import Recordings
from gpusim.studies.advice.machine import AdviceRequest, refuse_prices
from gpusim.studies.advice.study import Where
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from pandas import DataFrame


class ProgramAdvice:
    """What would help a program on a machine, ranked and simulated; as text, rows or JSON values."""

    def __init__(self, of: RankedAdvice) -> None:
        self._of = of
        self.values: dict[str, Any] = report.values(of)

    def frame(self) -> DataFrame:
        """As a pandas DataFrame: a row per proposal, best first, with the fields of `gpusim.studies.advice.answer.Proposal`."""
        return frame(self.values["proposals"])

    def __str__(self) -> str:
        return report.text(self._of)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def advise(
    program: str | Path | Trace | Sequence[str], *, on: str | Profile | None = None, beside: Sequence[str | Profile] = (),
    tries: Sequence[str] = (), prices: Mapping[str, float] | None = None, context: str | None = None, device: int | None = None,
    use: Sequence[Any] = (),
) -> ProgramAdvice:  # fmt: skip
    """Ask what would help a program on a machine: every remedy that gpusim simulates, ranked.

    program  a script with its arguments, which is recorded, another tool's recording, a trace, a managed program, or a model of
             the zoo: by name, path, or loaded
    on       the machine, or several of it ("4 x l40s"); None: for a snapshot, the device that it ran on
    beside   other machines, on which the program runs as it is
    tries    chains of transforms in place of the remedies that are usual
    prices   machine -> dollars for an hour of one GPU
    context  bytes of the CUDA context; None: each machine's own
    device   which GPU of a snapshot that holds several
    use      files with transforms of your own, or the decorated functions, which `tries` may name

    Raises TraceError for what is no program, ProfileError, GpusimError where a machine is missing.

    >>> import gpusim
    >>> found = gpusim.advise("gpt2-small-train", on="t4", tries=["checkpointing"]).values
    >>> found["fits"], [each["change"] for each in found["proposals"]]
    (True, ['checkpointing'])
    """
    if isinstance(program, Trace):
        recorded: Recordings | Path = Recordings({0: program}, 0)
    else:
        said = [str(program)] if isinstance(program, str | Path) else list(program)
        recorded = inputs.program_of(said, device=device, warn=lambda sentence: warnings.warn(sentence, stacklevel=4))
    gpus, where = _where(on)
    others = tuple(machine_of(each)[1] for each in beside)
    known = dict(prices or {})
    refuse_prices(known, [p.name for p in others] + ([where.profile.name] if where else []))
    taken = None if context is None else parse_bytes(context)
    asked = AdviceRequest(tuple(tries), gpus, others, known, taken, registry.of(*use))
    return ProgramAdvice(study.advise(recorded, where, asked))


def _where(on: str | Profile | None) -> tuple[int | None, Where | None]:
    """How many GPUs, None where that is not said, and the machine."""
    if on is None:
        return None, None
    if isinstance(on, Profile):
        return None, Where(on, None, on.name)
    gpus, one = words.counted(on)
    return gpus if gpus > 1 else None, Where(machine_of(one)[1], find("profile", named(one)[0]), one)
