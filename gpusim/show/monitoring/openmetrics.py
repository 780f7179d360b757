"""Samples as OpenMetrics text (specification 1.0), as Prometheus scrapes it and as `promtool tsdb create-blocks-from
openmetrics` takes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpusim.results.monitoring.family import PREFIX, Family
from gpusim.results.monitoring.samples import Samples

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END = "# EOF\n"
INFO = f"{PREFIX}run"  # the metric whose labels say what else a run was
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def text(places: Sequence[Samples], *, sample: int | None = None) -> Iterator[str]:
    """Pieces of the text of all samples of these devices, of any runs, with their times by the metrics' clock.

    sample  or: of one moment, without times, as a scrape asks for it; of a run that is over its last
    """
    for family in places[0].families.values() if places else ():
        lines = (line for place in places for line in _lines(family, place, sample))
        yield from _with_head(family, lines)
    yield from _settings(places, sample)
    yield END


def _with_head(family: Family, lines: Iterable[str]) -> Iterator[str]:
    """The lines behind what is said of the family, nothing where there are none."""
    said = False
    for line in lines:
        if not said:
            yield f"# TYPE {family.family} {family.kind}\n"
            yield f"# UNIT {family.family} {family.unit}\n" if family.unit else ""
            yield f"# HELP {family.family} {_escaped(family.meaning)}\n"
            said = True
        yield line


def _lines(family: Family, place: Samples, sample: int | None) -> Iterator[str]:
    for own, values in place.curves.get(family.name, {}).items():
        series = f"{family.sample}{_labels({**place.identity, **dict(zip(family.labels, own, strict=True))})}"
        if sample is None:
            timed = zip(values.tolist(), place.seconds.tolist(), strict=True)
            yield "".join(f"{series} {_number(value)} {second:.10g}\n" for value, second in timed)
        else:
            yield f"{series} {_number(float(values[min(sample, len(values) - 1)]))}\n"


def _settings(places: Sequence[Samples], sample: int | None) -> Iterator[str]:
    if places:
        yield f"# TYPE {INFO} info\n# HELP {INFO} What else the run was.\n"
    for place in places:
        series = f"{INFO}_info{_labels({**place.identity, **place.settings})}"
        yield f"{series} 1\n" if sample is not None else "".join(f"{series} 1 {t:.10g}\n" for t in place.seconds.tolist())


def _labels(values: Mapping[str, str]) -> str:
    """Labels without those that are empty, which Prometheus holds for absent."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items() if value) + "}"


def _escaped(value: str) -> str:
    return value.translate(_ESCAPED)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else repr(value)
