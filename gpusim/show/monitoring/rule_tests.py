"""Unit tests of the alert rules, for `promtool test rules`: of each a series at which it fires and one that is quiet."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpusim.results.monitoring.alerts import ALERTS, Alert
from gpusim.results.monitoring.cluster_alerts import CLUSTER_ALERTS
from gpusim.show.monitoring.rules import EVERY, RULES

_GIB = 2**30
_RISING = " ".join(f"{gib * _GIB}x9" for gib in (1, 2, 3, 4)) + f" {5 * _GIB}x40"  # a step of 10 s more each time
_FALLING = " ".join(f"{gib * _GIB}x9" for gib in (1, 2, 3, 2)) + f" {5 * _GIB}x40"
_SERIES = {  # how much there is, in all tests
    'gpusim_memory_limit_bytes{memory="device"}': f"{8 * _GIB}x90",
    'gpusim_memory_limit_bytes{memory="host"}': f"{8 * _GIB}x90",
}


@dataclass(frozen=True)
class RuleTest:
    """series   of one run, with a value a second; labels that all have are added
    quiet       the same of a run at which the alert does not fire
    pending     s at which it does not fire yet
    fires       s at which it does
    value       what the annotation says of the value then
    labels      of the alert, beside those that all have
    """

    series: Mapping[str, str]
    quiet: Mapping[str, str]
    pending: int
    fires: int
    value: str = ""
    labels: Mapping[str, str] | None = None


def _stalled(per_second: float) -> dict[str, str]:
    return {
        'gpusim_stall_seconds_total{cause="swap_in"}': f"0+{per_second}x90",
        'gpusim_stall_seconds_total{cause="launch"}': "0+0.1x90",
        'gpusim_kernel_seconds_total{stream="0"}': f"0+{0.9 - per_second:.1f}x90",
        "gpusim_evictions_total": "0+3x90",
    }


def _peers(slow: float) -> dict[str, str]:
    return {f'gpusim_step_kernel_seconds{{device="{n}", rank="{n}"}}': f"{2 if n < 3 else slow}x90" for n in range(4)}


def _cluster(metric: str, gpus: int) -> dict[str, str]:
    return {f"gpusim_cluster_{metric}": f"{gpus}x90", "gpusim_cluster_gpus": "32x90"}


def _lost(seconds: int) -> dict[str, str]:
    return {
        "gpusim_cluster_gpu_lost_seconds_total": f"{seconds}x90", "gpusim_cluster_gpu_held_seconds_total": "100x90",
    }  # fmt: skip


CASES = {
    "GpusimMemoryLeak": RuleTest({"gpusim_step_low_bytes": _RISING}, {"gpusim_step_low_bytes": _FALLING}, 45, 55, "4Gi"),
    **{
        f"Gpusim{word}MemoryRunsOut": RuleTest(
            {f'gpusim_step_peak_bytes{{memory="{memory}"}}': _RISING},
            {f'gpusim_step_peak_bytes{{memory="{memory}"}}': _FALLING}, 45, 55, "16.32Gi", {"memory": memory},
        )
        for word, memory in (("Device", "device"), ("Host", "host"))
    },
    "GpusimOutOfMemory": RuleTest({"gpusim_ooms_total": "0x29 1x60"}, {"gpusim_ooms_total": "0x90"}, 25, 31),
    "GpusimThrashing": RuleTest(_stalled(0.7), _stalled(0.3), 10, 40),
    "GpusimStraggler": RuleTest(_peers(2.5), _peers(2.3), 5, 15, "2.5s", {"device": "3", "rank": "3"}),
    "GpusimClusterBehind": RuleTest(_cluster("gpus_wanted", 80), _cluster("gpus_wanted", 60), 10, 25, "80"),
    "GpusimClusterFragmented": RuleTest(_cluster("gpus_apart", 4), _cluster("gpus_apart", 3), 5, 15, "4"),
    "GpusimClusterOutOfMemory": RuleTest(
        {"gpusim_cluster_memory_failures_total": "0x29 1x60"}, {"gpusim_cluster_memory_failures_total": "0x90"}, 25, 31
    ),
    "GpusimClusterNodesAway": RuleTest(_cluster("gpus_away", 4), _cluster("gpus_away", 3), 5, 15, "4"),
    "GpusimClusterLosesWork": RuleTest(_lost(21), _lost(19), 15, 25, "21"),
}  # fmt: skip
_WORD = re.compile(r"{{ \$(labels\.(\w+)|value \| \w+) }}")


def rule_tests() -> dict[str, Any]:
    """The file of unit tests: plain values for YAML."""
    return {
        "rule_files": [RULES],
        "evaluation_interval": EVERY,
        "tests": [test for alert in (*ALERTS, *CLUSTER_ALERTS) for test in _tests(alert, CASES[alert.name])],
    }


def _tests(alert: Alert, case: RuleTest) -> list[dict[str, Any]]:
    labels = {"trace": "t", "run": "r", **(case.labels or {})}

    def said(match: re.Match[str]) -> str:
        return labels.get(match[2], "") if match[2] else case.value

    fired = {
        "exp_labels": {**labels, "severity": alert.severity},
        "exp_annotations": {"summary": _WORD.sub(said, alert.summary), "description": alert.meaning},
    }
    return [
        {
            "name": f"{alert.name} {word}", "interval": EVERY,
            "input_series": [{"series": _with_labels(name), "values": values} for name, values in (series | _SERIES).items()],
            "alert_rule_test": [
                {"eval_time": f"{case.pending}s", "alertname": alert.name, "exp_alerts": []},
                {"eval_time": f"{case.fires}s", "alertname": alert.name, "exp_alerts": expected},
            ],
        }
        for word, series, expected in (("fires", dict(case.series), [fired]), ("stays quiet", dict(case.quiet), []))
    ]  # fmt: skip


def _with_labels(series: str) -> str:
    """The series with the labels that all have."""
    name, _, own = series.rstrip("}").partition("{")
    return f'{name}{{trace="t", run="r"{f", {own}" if own else ""}}}'
