"""What a profile says of its own making: which GPU and host it is of, which series were fitted into it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.fit.estimate import published
from gpusim.calibrate.fit.fitting import ALL, GPU, HOST, SERIES, SOME
from gpusim.calibrate.rows import Row, gpus, held_out
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile


@dataclass(frozen=True)
class Provenance:
    """Read off the profile's sources."""

    gpu: str
    """As rows name it; "" where the profile does not say."""
    host: str
    """The machine whose link was fitted; "" where none was, or it is not said."""
    fitted: bool
    """Some of its numbers come from rows."""
    everything: bool
    """The fit held nothing out."""
    series: frozenset[str] | None
    """All series that the fit saw; None where only `texts` name some."""
    texts: tuple[str, ...]
    """What the sources of fitted numbers say."""

    def saw(self, series: str, rows: Sequence[Row]) -> bool:
        """Whether the fit saw a series, of which these are rows.

        A profile of the catalogue names only the first series of each number, and where they were published: of these
        sources all series count as seen that a fit does not hold out.
        """
        if self.series is not None:
            return series in self.series
        if any(series in text for text in self.texts):
            return True
        given = self.everything or not held_out(series)
        return given and any(published(r) in text for r in rows[:1] if r.source for text in self.texts)


def provenance(profile: Profile) -> Provenance:
    """Of a profile of `gpusim calibrate fit`, or of the catalogue."""
    sources = profile.sources
    listed = sources.get(SERIES)
    known = profile.name if profile.name in catalogue.names() else ""
    return Provenance(
        sources.get(GPU, known), sources.get(HOST, ""), any(key.startswith((SOME, ALL)) for key in sources),
        any(key.startswith(ALL) for key in sources), None if listed is None else frozenset(listed.split("; ")),
        tuple(text for key, text in sources.items() if key.startswith((SOME, ALL))),
    )  # fmt: skip


def check_gpu(rows: Collection[Row], profile: Profile) -> str:
    """A caution where the profile does not say of which GPU it is.  Raises MeasurementError where that is not the rows'."""
    wanted, found = provenance(profile).gpu, gpus(rows)
    if found and not wanted:
        return f"the profile '{profile.name}' does not say which GPU it is of, so it may be another than the rows' {found[0]}"
    for gpu in found:
        if gpu.lower() != wanted.lower():
            hint = "fit a profile to them: gpusim calibrate fit --base NAME -o FILE"
            if gpu.lower() in catalogue.names():
                hint = f"compare with --on {gpu.lower()}"
            fault = f"the rows are of '{gpu}', but the profile '{profile.name}' is of {wanted.upper()}"
            raise MeasurementError(fault, hint=hint)
    return ""
