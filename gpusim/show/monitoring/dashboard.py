"""The dashboard of Grafana, as JSON of its schema version 42, from the list of metrics over time."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from gpusim.results.monitoring.families import FAMILIES
from gpusim.show.monitoring.queries import ALERTS_QUERY, CLOCK, VARIABLES, PanelQuery, panels

SCHEMA = 42
UID, TITLE = "gpusim", "gpusim"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _ACROSS, _HIGH = 24, 3, 8  # of Grafana's grid; panels beside each other; rows of it that a panel takes


def dashboard() -> dict[str, Any]:
    """The dashboard: plain values for JSON."""
    firing = PanelQuery("alerts that fire", "alerts", ALERTS_QUERY, "short", "{{alertname}} {{run}}", "1 while an alert fires.")
    made: list[dict[str, Any]] = []
    top = 0
    for group, members in groupby([firing, *panels()], key=lambda panel: panel.group):
        row = {"type": "row", "title": group, "collapsed": False, "panels": [], "gridPos": _at(top, 0, _WIDTH, 1)}
        made.append({"id": len(made) + 1, **row})
        top += 1
        shown = list(members)
        wide = _WIDTH // min(_ACROSS, len(shown))
        for number, panel in enumerate(shown):
            down, across = divmod(number, _ACROSS)
            made.append(_panel(panel, len(made) + 1, _at(top + down * _HIGH, across * wide, wide, _HIGH)))
        top += -(-len(shown) // _ACROSS) * _HIGH
    return {
        "uid": UID, "title": TITLE, "schemaVersion": SCHEMA, "editable": True, "tags": ["gpusim"], "timezone": "utc",
        "description": "Made by `gpusim monitor` from the list of metrics over time; rates are per simulated second.",
        "graphTooltip": 1, "refresh": "5s", "time": {"from": "now-5m", "to": "now"},
        "templating": {"list": [_datasource(), *(_variable(name) for name in VARIABLES)]},
        "annotations": {"list": []}, "panels": made,
    }  # fmt: skip


def _at(y: int, x: int, wide: int, high: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": wide, "h": high}


def _panel(panel: PanelQuery, number: int, at: dict[str, int]) -> dict[str, Any]:
    custom: dict[str, Any] = {"drawStyle": "line", "lineInterpolation": "stepAfter", "fillOpacity": 0, "showPoints": "never"}
    if panel.stacked:
        custom |= {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 30}
    return {
        "id": number, "type": "timeseries", "title": panel.title, "description": panel.meaning, "datasource": _SOURCE,
        "gridPos": at, "interval": "1s",
        "targets": [{
            "refId": "A", "datasource": _SOURCE, "expr": panel.promql, "legendFormat": panel.legend, "range": True,
            "editorMode": "code",
        }],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }  # fmt: skip


def _datasource() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus"}


def _variable(name: str) -> dict[str, Any]:
    """A label by which the series are chosen, among those that the variables before it leave."""
    before = ", ".join(f'{other}=~"${other}"' for other in VARIABLES[: VARIABLES.index(name)])
    query = f"label_values({FAMILIES[CLOCK].sample}{f'{{{before}}}' if before else ''}, {name})"
    return {
        "type": "query", "name": name, "label": name, "datasource": _SOURCE, "query": query, "definition": query,
        "multi": True, "includeAll": True, "allValue": ".*", "refresh": 2, "sort": 1,
    }  # fmt: skip
