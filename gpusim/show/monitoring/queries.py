"""Queries of the dashboard: one for each metric of the list, by its kind and unit, and those that combine several.

Rates are per simulated second.  A query has `$run` and the other variables of the dashboard, and `$__rate_interval`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.results.monitoring.alerts import MEMORY_WAITS
from gpusim.results.monitoring.families import FAMILIES
from gpusim.results.monitoring.family import COUNTER, Family

VARIABLES = ("trace", "profile", "policy", "run", "device")
CLOCK = "simulated_seconds"
_CHOSEN = ", ".join(f'{name}=~"${name}"' for name in VARIABLES)
# Unit of a metric -> that of Grafana for its value, and for what it grows by in a simulated second.
_UNITS = {"": ("short", "cps"), "bytes": ("bytes", "binBps"), "ratio": ("percentunit", ""), "seconds": ("s", "percentunit"),
          "bytes_per_second": ("binBps", "")}  # fmt: skip


@dataclass(frozen=True)
class PanelQuery:
    """What one panel of the dashboard shows.

    group    the row that it stands in
    unit     of Grafana
    legend   how a curve is named, with the labels of its series
    stacked  whether the curves of one run add up to something
    """

    title: str
    group: str
    promql: str
    unit: str
    legend: str
    meaning: str
    stacked: bool = False


def selected(metric: str, more: str = "") -> str:
    """The series of a metric that the dashboard's variables choose; more: further matchers."""
    return f"{FAMILIES[metric].sample}{{{_CHOSEN}{f', {more}' if more else ''}}}"


def rate(metric: str, more: str = "") -> str:
    """By how much a counter grows in a second of the metrics' clock."""
    return f"rate({selected(metric, more)}[$__rate_interval])"


def per_second(metric: str) -> str:
    """By how much it grows in a simulated second, for each value of its own labels."""
    own = ", ".join(FAMILIES[metric].labels)
    return f"{rate(metric)} / {f'ignoring ({own}) group_left () ' if own else ''}{rate(CLOCK)}"


def of_family(family: Family) -> PanelQuery:
    """The panel of one metric."""
    level, growth = _UNITS[family.unit]
    words, grows = family.name.replace("_", " "), family.kind == COUNTER
    title = f"{words} per simulated second" if grows else words
    promql = per_second(family.name) if grows else selected(family.name)
    stacked = bool(family.labels) and family.name in STACKED
    return PanelQuery(title, family.group, promql, growth if grows else level, legend(family.labels), family.meaning, stacked)


STACKED = ("memory_owner_bytes", "stall_seconds")  # whose curves add up to what the run has in all
_WAITS = "|".join(MEMORY_WAITS)


def legend(own: tuple[str, ...] = ()) -> str:
    """Of a curve: what the run was, and the values of labels of its own."""
    return " ".join(f"{{{{{label}}}}}" for label in (*own, "trace", "profile", "policy", "run"))


COMBINED = (
    PanelQuery(
        "idle share", "compute",
        f"1 - avg without (stream) ({rate('kernel_seconds')}) / {rate(CLOCK)}", "percentunit", legend(),
        "Share of the time in which the average stream with kernels ran none.",
    ),
    PanelQuery(
        "waits for swaps and page faults: share of streams' time", "compute",
        f"""sum without (cause) ({rate('stall_seconds', f'cause=~"{_WAITS}"')}) / """
        f"(sum without (cause) ({rate('stall_seconds')}) + sum without (stream) ({rate('kernel_seconds')}))",
        "percentunit", legend(), "Above a half for 15 seconds the alert GpusimThrashing fires.",
    ),
    PanelQuery(
        "link use", "transfers",
        f"{per_second('link_bytes')} / {selected('link_limit_bytes_per_second')}", "percentunit", legend(("link",)),
        "Bytes that crossed a link over what it carries in that time.",
    ),
)  # fmt: skip


def panels() -> list[PanelQuery]:
    """All panels, by group in the order of the list; those that combine metrics come first."""
    shown = [of_family(family) for family in FAMILIES.values() if family.name != CLOCK]
    groups = list(dict.fromkeys(family.group for family in FAMILIES.values()))
    return sorted((*COMBINED, *shown), key=lambda panel: groups.index(panel.group))


ALERTS_QUERY = 'ALERTS{alertname=~"Gpusim.*", alertstate="firing", run=~"$run"}'
