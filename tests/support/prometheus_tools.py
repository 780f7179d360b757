"""Prometheus and promtool, where they are installed: tests that need one are skipped, with this reason, where it is not."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from gpusim.show.monitoring.queries import VARIABLES

PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (apt-get install prometheus)")
needs_prometheus = pytest.mark.skipif(
    PROMTOOL is None or PROMETHEUS is None, reason="prometheus is not installed (apt-get install prometheus)"
)
READY = 30  # s that a server may take to start


def plain(promql: str) -> str:
    """A query of the dashboard as Grafana asks it, with every variable at "all"."""
    for name in VARIABLES:
        promql = promql.replace(f'"${name}"', '".*"')
    return promql.replace("$__rate_interval", "30s")


def promtool(*words: object) -> str:
    """What it prints.  AssertionError with that when it says no."""
    done = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def blocks(metrics: Path, folder: Path) -> Path:
    """The folder, with the blocks that promtool makes of this text."""
    said = promtool("tsdb", "create-blocks-from", "openmetrics", metrics, folder)
    assert "NUM SAMPLES" in said
    return folder


class Server:
    """A Prometheus that only answers, on the loopback interface."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        try:
            return bool(urlopen(f"{self._url}/-/ready", timeout=5).status == 200)
        except (URLError, OSError):
            return False

    def series(self, query: str, end: float, step: float = 1) -> list[dict[str, Any]]:
        """[{"metric": labels, "values": [[second, text], ...]}] from 0 to `end` s."""
        asked = urlencode({"query": query, "start": 0, "end": end, "step": step})
        with urlopen(f"{self._url}/api/v1/query_range?{asked}", timeout=30) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


@contextmanager
def prometheus(data: Path) -> Iterator[Server]:
    """A server of these blocks, until the end of the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = data.parent / "only_answers.yml"
    config.write_text("{}\n")
    words = [
        str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}", "--query.lookback-delta=5s",
    ]  # fmt: skip
    with (data.parent / "prometheus.log").open("w") as said:
        process = subprocess.Popen(words, stderr=said, stdout=said)
    server, since = Server(port), time.monotonic()
    try:
        while not server.ready():
            assert process.poll() is None and time.monotonic() - since < READY, (data.parent / "prometheus.log").read_text()
            time.sleep(0.05)
        yield server
    finally:
        process.terminate()
        process.wait()
