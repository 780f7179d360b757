"""The workers of a dask scheduler, on this machine or others, as an executor: those that are refused, and why.

Results decide nothing about where they were computed, as long as the code is the same: a worker with another one is refused
before the first batch, and one that comes later at its first.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError, note
from gpusim.base.files import digest
from gpusim.experiment.executor import AHEAD, Futures, Stop
from gpusim.experiment.key import Code
from gpusim.experiment.pool import attempt
from gpusim.results.manifest import NAME as MANIFEST
from gpusim.results.manifest import versions

CONNECT_S, WORKERS_S = 10, 60  # to wait for the scheduler, and for its first worker
_AS_HERE = ("distributed", "python", "cloudpickle", "msgpack")  # versions on which what dask sends depends
SAME = "install the same in both environments"
_ONE = threading.Lock()


@dataclass(frozen=True)
class WorkerSeen:
    """What a worker is: the hash of its code and the versions that decide results, and whether it sees the results folder."""

    code: str
    versions: dict[str, str]
    sees: bool


@contextmanager
def dask_executor(address: str, out: Path) -> Iterator[Futures]:
    """The workers of the scheduler at this address, or of the one that wrote this file, for results in `out`.

    Raises GpusimError: dask is not installed, no scheduler, no worker, or one of another version or that does not see `out`.
    """
    try:
        import distributed
    except ImportError:
        raise GpusimError("an executor of dask needs dask", hint="pip install 'gpusim[dask]'") from None
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is raised
    client = _client(distributed, address)
    try:
        _check_versions(client, address)
        threads = _workers(client, address)
        _check_workers(client, out)
        if max(threads.values()) > 1:
            note("each dask worker does one batch at a time, however many threads it has: start more workers with --nthreads 1")

        def check() -> None:
            if client.status != "running":
                hint = "what is finished is kept; the same command does the rest"
                raise GpusimError(f"the dask scheduler at {address} has ended", hint=hint)
            if not client.nthreads():
                note(f"no worker of the dask scheduler at {address} is left: batches wait for one")

        yield Futures(client.get_executor(pure=False), AHEAD * len(threads), check, attempt=_Far(_code()))
    finally:
        client.close(timeout=CONNECT_S)


def _client(distributed: Any, address: str) -> Any:
    file = Path(address)
    there = {"scheduler_file": str(file)} if file.suffix == ".json" else {"address": address}
    if "scheduler_file" in there and not file.is_file():
        hint = "`dask scheduler --scheduler-file FILE` writes it"
        raise GpusimError("there is no such file of a dask scheduler", address, hint)
    try:
        return distributed.Client(**there, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        said = "does not answer" if isinstance(error, OSError | TimeoutError) else f"is none: {error}"
        hint = "`dask scheduler` starts one, and says its address"
        raise GpusimError(f"the dask scheduler at {address} {said}", hint=hint) from None


def _check_versions(client: Any, address: str) -> None:
    """Refuse a scheduler or worker whose dask is another."""
    said = client.get_versions()
    here = said["client"]["packages"] | said["client"]["host"]
    for where, found in (("scheduler", said["scheduler"]), *said["workers"].items()):
        there = (found or {}).get("packages", {}) | (found or {}).get("host", {})
        for name in _AS_HERE:
            if (one := _minor(name, there.get(name))) != (other := _minor(name, here.get(name))):
                what = f"the dask scheduler at {address}" if where == "scheduler" else f"the dask worker at {where}"
                raise GpusimError(f"{what} has {name} {one}, and here it is {other}", hint=SAME)


def _minor(name: str, version: Any) -> str:
    """Of Python 3.11.7.final.0 the first two numbers, of others all."""
    return ".".join(str(version).split(".")[:2]) if name == "python" else str(version)


def _workers(client: Any, address: str) -> dict[str, int]:
    """The workers' addresses with their threads, when the first is there."""
    try:
        client.wait_for_workers(1, timeout=WORKERS_S)
    except TimeoutError:
        hint = f"`dask worker {address} --nthreads 1` starts one"
        raise GpusimError(f"the dask scheduler at {address} has no worker", hint=hint) from None
    return dict(client.nthreads())


def _check_workers(client: Any, out: Path) -> None:
    """Refuse workers without gpusim, with another one, or that do not see the results folder."""
    path = out.absolute()
    for worker, seen in client.run(_see, str(path), digest(path / MANIFEST), on_error="return").items():
        if isinstance(seen, BaseException):
            if absent := re.search(r"No module named \W*([\w.]+)", str(seen)):  # dask hands on what a worker raised as text
                hint = "install the same gpusim in its environment"
                raise GpusimError(f"the dask worker at {worker} has no {absent[1]}", hint=hint)
            raise GpusimError(f"the dask worker at {worker} does not answer: {type(seen).__name__}: {seen}")
        if seen.code != _code():
            raise GpusimError(_other(worker, seen.versions), hint=SAME)
        if not seen.sees:
            hint = "a folder that all machines share, under one path: -o FOLDER"
            raise GpusimError(f"the dask worker at {worker} does not see the results folder {path}", hint=hint)


def _other(worker: str, found: dict[str, str]) -> str:
    here = versions()
    differ = [f"{name} {found.get(name) or '(not installed)'}, here {here[name] or '(not installed)'}" for name in here
              if found.get(name) != here[name]]  # fmt: skip
    return f"the dask worker at {worker} has another gpusim than this one: {'; '.join(differ) or 'its source differs'}"


def _see(out: str, manifest: str) -> WorkerSeen:
    """On a worker."""
    path = Path(out) / MANIFEST
    return WorkerSeen(_code(), versions(), path.is_file() and digest(path) == manifest)


@cache
def _code() -> str:
    return Code().of_all()


@dataclass(frozen=True)
class _Far:
    """On a worker: do a batch, when its code is that of the sender; one batch at a time, as a process has one engine."""

    code: str

    def __call__(self, work: Callable[[Any], Any], task: Any) -> Any:
        if self.code != _code():
            return Stop(f"a dask worker that has come meanwhile has another gpusim than this one ({SAME})")
        with _ONE:
            return attempt(work, task)
