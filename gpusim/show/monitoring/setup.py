"""The files of a set-up: Prometheus and Grafana beside a simulator that plays its runs, containers of one compose file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpusim.base.files import make_folder, write_text
from gpusim.show.monitoring.dashboard import UID, dashboard
from gpusim.show.monitoring.rule_tests import rule_tests
from gpusim.show.monitoring.rules import EVERY, RULES, TESTS, as_yaml, rules

PORT = 9464
PROMETHEUS, GRAFANA = "prom/prometheus:v3.5.0", "grafana/grafana:12.1.0"
_MADE = "Made by `gpusim monitor`."
_IMAGE = """FROM python:3.12-slim
COPY . /gpusim
RUN pip install --no-cache-dir /gpusim
WORKDIR /results
ENTRYPOINT ["gpusim"]
"""
_FLAGS = (
    "--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus",
    "--storage.tsdb.retention.time=100y",  # recorded runs begin at 1970
    "--query.lookback-delta=5s",           # a run that is over is no longer there
)  # fmt: skip


def files() -> dict[str, str]:
    """Path below the folder -> content."""
    return {
        "compose.yaml": as_yaml(compose(), f"{_MADE}  GPUSIM_SOURCE=~/gpusim docker compose up"),
        "prometheus/prometheus.yml": as_yaml(prometheus(), _MADE),
        f"prometheus/{RULES}": as_yaml(rules(), _MADE),
        f"prometheus/{TESTS}": as_yaml(rule_tests(), f"{_MADE}  promtool test rules {TESTS}"),
        "grafana/provisioning/datasources/prometheus.yml": as_yaml(datasources(), _MADE),
        "grafana/provisioning/dashboards/gpusim.yml": as_yaml(dashboards(), _MADE),
        f"grafana/dashboards/{UID}.json": json.dumps(dashboard(), indent=1) + "\n",
    }


def write(folder: Path) -> list[Path]:
    """Write them all; ResultError where that is not possible."""
    made = []
    for name, content in files().items():
        make_folder((folder / name).parent)
        write_text(folder / name, content)
        made.append(folder / name)
    return made


def compose() -> dict[str, Any]:
    """The three containers: plain values for YAML."""
    return {
        "name": "gpusim",
        "services": {
            "gpusim": {
                "build": {
                    "context": "${GPUSIM_SOURCE:?the folder of a checkout of gpusim}", "dockerfile_inline": _IMAGE,
                },
                "command": ["run", "${GPUSIM_EXPERIMENT:-prefetch}", "--no-figures", "--metrics", f"0.0.0.0:{PORT}"],
                "volumes": ["results:/results"],
            },
            "prometheus": {
                "image": PROMETHEUS, "command": list(_FLAGS), "ports": ["127.0.0.1:9090:9090"],
                "volumes": ["./prometheus:/etc/prometheus:ro", "prometheus:/prometheus"], "depends_on": ["gpusim"],
            },
            "grafana": {
                "image": GRAFANA, "ports": ["127.0.0.1:3000:3000"], "depends_on": ["prometheus"],
                "environment": {
                    "GF_AUTH_ANONYMOUS_ENABLED": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
                    "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH": f"/var/lib/grafana/dashboards/{UID}.json",
                    "GF_DASHBOARDS_MIN_REFRESH_INTERVAL": EVERY,
                },
                "volumes": [
                    "./grafana/provisioning:/etc/grafana/provisioning:ro",
                    "./grafana/dashboards:/var/lib/grafana/dashboards:ro",
                ],
            },
        },
        "volumes": {"results": {}, "prometheus": {}},
    }  # fmt: skip


def prometheus() -> dict[str, Any]:
    """The configuration of Prometheus."""
    return {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": [RULES],
        "scrape_configs": [{"job_name": "gpusim", "static_configs": [{"targets": [f"gpusim:{PORT}"]}]}],
    }


def datasources() -> dict[str, Any]:
    """Where Grafana finds Prometheus."""
    source = {
        "name": "Prometheus", "type": "prometheus", "uid": "prometheus", "url": "http://prometheus:9090", "access": "proxy",
        "isDefault": True, "jsonData": {"timeInterval": EVERY, "httpMethod": "POST"},
    }  # fmt: skip
    return {"apiVersion": 1, "datasources": [source]}


def dashboards() -> dict[str, Any]:
    """Where Grafana finds the dashboard."""
    provider = {"name": UID, "type": "file", "options": {"path": "/var/lib/grafana/dashboards"}}
    return {"apiVersion": 1, "providers": [provider]}
