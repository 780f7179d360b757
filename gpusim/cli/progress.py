"""How far something is that takes long, on stderr: a bar on a terminal, plain lines in logs of CI, Slurm and notebooks."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpusim.cli import say

FIRST, AGAIN, SHARE = 2.0, 30.0, 0.1  # a first line after so many seconds; one more after so many, or so large a share
_TICK = 0.25


@contextmanager
def bar(what: str, doing: str = "") -> Iterator[Callable[[int, int], None]]:
    """A function of (done, total) that says how far it is; `doing` is what goes on before its first call."""
    if say.is_quiet():
        yield lambda done, total: None
        return
    with (_drawn if sys.stderr.isatty() else _told)(what, doing) as progress:
        yield progress


@contextmanager
def _drawn(what: str, doing: str) -> Iterator[Callable[[int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(doing or what, total=None, visible=bool(doing))
        yield lambda done, total: shown.update(task, description=what, completed=done, total=total, visible=True)


@contextmanager
def _told(what: str, doing: str) -> Iterator[Callable[[int, int], None]]:
    lines = _Lines(what, doing)
    teller = threading.Thread(target=lines.tell, daemon=True)
    teller.start()
    try:
        yield lines.reached
    finally:
        lines.over.set()
        teller.join()


class _Lines:
    """The plain lines; what takes less than FIRST seconds says nothing."""

    def __init__(self, what: str, doing: str) -> None:
        self.what, self.doing = what, doing
        self.done, self.total = 0, 0
        self.began = time.monotonic()
        self.said_at, self.said = 0.0, 0
        self.over = threading.Event()

    def reached(self, done: int, total: int) -> None:
        if total != self.total:  # another kind of work begins
            self.said = 0
        self.done, self.total = done, total

    def tell(self) -> None:
        """Say it again and again, until it is over."""
        while not self.over.wait(_TICK):
            passed = time.monotonic() - self.began
            further = self.done < self.total and self.done - self.said >= max(1, SHARE * self.total)
            if passed - self.said_at >= (FIRST if further or not self.said_at else AGAIN) and (self.total or self.doing):
                self.said_at, self.said = passed, self.done
                where = f"{self.done:,} of {self.total:,} {self.what}" if self.total else self.doing
                say.told(f"{where}, {passed:.0f} s")
