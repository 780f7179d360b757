"""An endpoint that Prometheus scrapes: runs that are over, played again in real or scaled time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from gpusim.base.errors import GpusimError
from gpusim.results.monitoring.samples import Samples
from gpusim.show.monitoring.openmetrics import CONTENT_TYPE, text

PATH = "/metrics"
LOCAL = "127.0.0.1"


class Endpoint:
    """Serves the samples of the moment at http://HOST:PORT/metrics, from another thread, until it is closed.

    Before `play` there is nothing to tell; behind the last sample of a run that one stays.

    now   seconds of the metrics' clock, from any beginning
    Raises GpusimError when the port cannot be had.
    """

    def __init__(self, host: str, port: int, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._began = now, 0.0
        self._places: Sequence[Samples] = ()
        try:
            self._server = ThreadingHTTPServer((host or LOCAL, port), _handler(self))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise GpusimError(
                f"cannot serve metrics on port {port}: {why}", hint="choose another, or :0 for any that is free"
            ) from None
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where it is."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}{PATH}"

    def play(self, places: Sequence[Samples]) -> None:
        """Begin at the first sample of these devices, of any runs with one clock."""
        self._began, self._places = self._now(), places

    @property
    def sample(self) -> int:
        """The number of the sample of this moment."""
        return int((self._now() - self._began) / self._places[0].step) if self._places else 0

    def text(self) -> str:
        """What a scrape gets now."""
        return "".join(text(self._places, sample=self.sample))

    def close(self) -> None:
        """Give the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(endpoint: Endpoint) -> type[BaseHTTPRequestHandler]:
    class Scraped(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == PATH
            body = (endpoint.text() if found else f"there is only {PATH}\n").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", CONTENT_TYPE if found else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A scrape a second is not worth a line each."""

    return Scraped
