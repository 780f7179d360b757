"""Do the alerts fire at simulated incidents, in time, and at nothing else?  Prometheus says the same of the same samples."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from prometheus_tools import blocks, needs_prometheus, plain, prometheus

from gpusim.results.monitoring.alerts import ALERTS
from gpusim.results.monitoring.windows import lasting
from gpusim.show.monitoring.openmetrics import text
from gpusim.show.monitoring.queries import panels
from gpusim.studies.monitoring.incidents import INCIDENTS, OOM, Observed, observe

pytestmark = pytest.mark.slow
EXTRAPOLATED = 2  # s by which Prometheus may differ: its rates go on to the ends of their windows
BY_NAME = {incident.name: incident for incident in INCIDENTS}


@cache
def observed(name: str) -> Observed:
    return observe(BY_NAME[name])


@pytest.mark.formulas
@pytest.mark.parametrize("name", BY_NAME)
def test_what_should_fire_fires_and_nothing_else(name: str) -> None:
    found = observed(name)
    assert {f.alert.name for f in found.fired} == set(found.incident.expected)


@pytest.mark.formulas
@pytest.mark.parametrize("name", [name for name, incident in BY_NAME.items() if incident.begins > 1])
def test_alerts_fire_after_the_incident_has_begun_and_before_memory_is_gone(name: str) -> None:
    found = observed(name)
    for fired in found.fired:
        assert fired.first > found.began
        assert fired.first < found.ended or fired.alert.name == OOM


@pytest.mark.formulas
def test_only_the_slow_device_is_a_straggler() -> None:
    assert {f.identity["device"] for f in observed("straggler").fired} == {"3"}


@needs_prometheus
@pytest.mark.oracle
@pytest.mark.parametrize("name", BY_NAME)
def test_prometheus_says_the_same(name: str, tmp_path: Path) -> None:
    found = observed(name)
    path = tmp_path / "metrics.om"
    path.write_text("".join(text(found.samples)))
    last = float(found.samples[0].seconds[-1])
    here = {(f.alert.name, f.identity["device"]): f.seconds for f in found.fired}
    there = {}
    with prometheus(blocks(path, tmp_path / "data")) as server:
        for alert in ALERTS:
            for series in server.series(alert.promql, last):
                truth = np.zeros(int(last) + 1, bool)
                truth[[int(second) for second, _ in series["values"]]] = True
                if (fires := lasting(truth, alert.hold)).any():
                    there[alert.name, series["metric"]["device"]] = float(np.argmax(fires))
    assert there.keys() == here.keys()
    assert there == pytest.approx(here, abs=EXTRAPOLATED)


@needs_prometheus
@pytest.mark.oracle
def test_every_panel_shows_something_of_a_recorded_run(tmp_path: Path) -> None:
    path = tmp_path / "metrics.om"
    path.write_text("".join(text([*observed("thrashing").samples, *observed("unified thrashing").samples])))
    with prometheus(blocks(path, tmp_path / "data")) as server:
        for panel in panels():
            values = [float(v) for series in server.series(plain(panel.promql), 400) for _, v in series["values"]]
            assert values and min(values) > -1e-9, panel.title
            if panel.unit == "percentunit":
                assert max(values) < 1 + 1e-9, panel.title
