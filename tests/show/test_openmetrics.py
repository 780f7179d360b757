"""Is the text of metrics over time OpenMetrics, to the letter of the parsers of prometheus-client and of Prometheus?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_tools import blocks, needs_prometheus, prometheus

from gpusim.results.monitoring.clock import MetricsClock
from gpusim.results.monitoring.families import FAMILIES
from gpusim.results.monitoring.samples import Samples
from gpusim.show.monitoring.openmetrics import text

NASTY = 'a "quoted" \\ path\nin two lines, ü'


def made(run: str = "r1", count: int = 4) -> Samples:
    """Samples with a value for each label, in order to be found again."""
    seconds = np.arange(count, dtype=float)
    curves = {
        name: {
            tuple(f"{label} {n}" for label in family.labels): seconds * (n + 1) + 0.125
            for n in range(2 if family.labels else 1)
        }
        for name, family in FAMILIES.items()
    }
    identity = {"trace": "t", "profile": NASTY, "policy": "lru", "run": run, "device": "0", "host": "0", "tenant": ""}
    return Samples(identity, {"memory": "60 %"}, seconds, seconds.astype(np.int64), MetricsClock(1.0), curves, FAMILIES)


def parsed(body: str) -> dict[str, list[tuple[str, dict[str, str], float, float | None]]]:
    """Family -> its samples."""
    return {
        family.name: [
            (s.name, dict(s.labels), s.value, None if s.timestamp is None else float(s.timestamp)) for s in family.samples
        ]
        for family in text_string_to_metric_families(body)
    }


def test_every_family_comes_back_with_its_type_unit_meaning_labels_values_and_times() -> None:
    body = "".join(text([made("r1"), made("r2", 2)]))
    families = {family.name: family for family in text_string_to_metric_families(body)}
    assert set(families) == {*(family.family for family in FAMILIES.values()), "gpusim_run"}
    found = parsed(body)
    for name, family in FAMILIES.items():
        told = families[family.family]
        assert (told.type, told.unit, told.documentation) == (family.kind, family.unit, family.meaning)
        of = [s for s in found[family.family] if s[1]["run"] == "r1"]
        assert {s[0] for s in of} == {family.sample}
        assert all(s[1]["profile"] == NASTY and "tenant" not in s[1] for s in of)
        first = [s for s in of if all(s[1][label] == f"{label} 0" for label in family.labels)]
        assert [(s[2], s[3]) for s in first] == [(t + 0.125, t) for t in (0.0, 1.0, 2.0, 3.0)], name
        assert sum(s[1]["run"] == "r2" for s in found[family.family]) == 2 * (2 if family.labels else 1)
    assert all(s[1]["memory"] == "60 %" for s in found["gpusim_run"])


def test_a_scrape_has_one_sample_of_each_series_without_a_time() -> None:
    found = parsed("".join(text([made()], sample=2)))
    for family in FAMILIES.values():
        assert [s[2:] for s in found[family.family]][:1] == [(2.125, None)]
    behind = parsed("".join(text([made()], sample=99)))
    assert behind["gpusim_ooms"][0][2] == 3.125, "the last one stays"


def test_a_family_without_curves_is_not_named() -> None:
    one = made()
    some = dataclasses.replace(one, curves={**one.curves, "faults": {}})
    assert "gpusim_faults" not in "".join(text([some]))


def test_nothing_is_an_end() -> None:
    assert "".join(text([])) == "# EOF\n"
    assert parsed("".join(text([]))) == {}


@needs_prometheus
@pytest.mark.slow
@pytest.mark.oracle
def test_prometheus_reads_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.om"
    path.write_text("".join(text([made()])))
    with prometheus(blocks(path, tmp_path / "data")) as server:
        for family in FAMILIES.values():
            (series, *more) = server.series(f"{family.sample}{{run='r1'}}", 3)
            assert [(t, float(v)) for t, v in series["values"]] == [(t, t + 0.125) for t in (0, 1, 2, 3)]
            assert len(more) == (1 if family.labels else 0) and series["metric"]["profile"] == NASTY
