"""Where metrics over time go: a file of OpenMetrics, or an endpoint that Prometheus scrapes."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpusim.base.errors import GpusimError, ResultError
from gpusim.base.files import write_atomic
from gpusim.cli import say

if TYPE_CHECKING:
    from gpusim.results.monitoring.samples import Samples
    from gpusim.show.monitoring.endpoint import Endpoint
    from gpusim.studies.monitoring.runs import RecordedRuns

_ENDPOINT = re.compile(r"(?P<host>[^/\s:]*|\[[0-9a-fA-F:]+\]):(?P<port>\d+)")


class MetricsOut:
    """The target that `--metrics` names: "PATH", or "[HOST]:PORT".

    It is tried before anything runs.  Raises GpusimError for a port that cannot be had, ResultError for a file that cannot be
    written.
    """

    def __init__(self, target: str) -> None:
        self._path, self._endpoint = Path(target).expanduser(), None
        if match := _ENDPOINT.fullmatch(target):
            self._endpoint = _endpoint(match["host"].strip("[]"), int(match["port"]))
        else:
            _try(self._path)

    def give(self, runs: RecordedRuns, *, quiet: bool = False) -> None:
        """Write the samples of these runs, or play them until Ctrl-C."""
        for why in runs.without.values():
            say.warning(f"left out of the metrics: {why}")
        places = list(runs)
        if self._endpoint is None:
            self._write(places, quiet)
        else:
            self._play(self._endpoint, places)

    def close(self) -> None:
        """Give the port back."""
        if self._endpoint is not None:
            self._endpoint.close()

    def _write(self, places: list[Samples], quiet: bool) -> None:
        from gpusim.show.monitoring.openmetrics import text

        write_atomic(self._path, lambda out: out.writelines(piece.encode() for piece in text(places)))
        if not quiet:
            longest = max(float(place.seconds[-1]) for place in places)
            typer.echo(f"\n{self._path}: metrics of {_runs(places)}, {longest:g} s by a clock {_scaled(places)}")
            typer.echo(f"for Prometheus: promtool tsdb create-blocks-from openmetrics {self._path} DATA")

    def _play(self, endpoint: Endpoint, places: list[Samples]) -> None:
        endpoint.play(places)
        try:
            say.told(f"{endpoint.address}: metrics of {_runs(places)}, by a clock {_scaled(places)}; Ctrl-C ends it")
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            return


def _endpoint(host: str, port: int) -> Endpoint:
    from gpusim.show.monitoring.endpoint import Endpoint

    if port > 65_535:
        raise GpusimError(f"there is no port {port}", hint="ports are numbers up to 65535, such as --metrics :9464")
    return Endpoint(host, port)


def _try(path: Path) -> None:
    """Say now what would be said after all runs."""
    if path.is_dir():
        raise ResultError("metrics are written to a file, and this is a folder", str(path), f"such as {path / 'metrics.om'}")
    try:
        if not path.exists():
            tempfile.TemporaryFile(dir=path.parent).close()
        else:
            path.open("ab").close()
    except OSError as error:
        why = f"metrics cannot be written there: {error.strerror or error}"
        raise ResultError(why, str(path), "name another file") from None


def _runs(places: list[Samples]) -> str:
    runs = len({place.identity["run"] for place in places})
    return f"{runs} run{'' if runs == 1 else 's'}" + (f" and {len(places)} {_each(places)}" if len(places) > runs else "")


def _each(places: list[Samples]) -> str:
    return "programs" if any(place.identity["tenant"] != "0" for place in places) else "GPUs"


def _scaled(places: list[Samples]) -> str:
    scale = places[0].clock.scale
    return "of real time" if scale == 1 else f"on which a simulated second takes {scale:g}"
