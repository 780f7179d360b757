"""The alert rules of Prometheus, and unit tests of each for `promtool test rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from gpusim.results.monitoring.alerts import ALERTS, Alert
from gpusim.results.monitoring.cluster_alerts import CLUSTER_ALERTS

GROUP, EVERY = "gpusim", "1s"
RULES, TESTS = "rules.yml", "rules.test.yml"


def rules(alerts: Sequence[Alert] = (*ALERTS, *CLUSTER_ALERTS)) -> dict[str, Any]:
    """The file of rules: plain values for YAML."""
    return {"groups": [{"name": GROUP, "interval": EVERY, "rules": [_rule(alert) for alert in alerts]}]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name, "expr": alert.promql, "for": f"{alert.hold}s", "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "description": alert.meaning},
    }  # fmt: skip


def as_yaml(value: Any, said: str) -> str:
    """A file of these values that begins with what is said."""
    return f"# {said}\n{yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)}"
