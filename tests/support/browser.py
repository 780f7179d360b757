"""A page in headless Chromium, with everything that it says on its console and every request that would leave it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOCAL = ("file:", "data:", "blob:", "about:")
STEP, STEPS = 50, 6000  # ms between two looks, and how often it is looked
PATIENCE = STEP * STEPS  # ms that a click waits for what it clicks on, as long as the machine is busy with other things


@dataclass
class Opened:
    """A page, what it complained of, and where it would have gone."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, script: str, *given: Any) -> Any:
        """The value of an expression or function in the page."""
        return self.page.evaluate(script, *given)

    def wait(self, script: str) -> None:
        """Until the expression is true.  The page forbids what Playwright's own waiting needs (eval)."""
        for _ in range(STEPS):
            if self.ask(script):
                return
            self.page.wait_for_timeout(STEP)
        raise AssertionError(f"never: {script}")

    def scroll_through(self) -> None:
        """Bring every part into view once, so that what waits for that is drawn."""
        count = self.ask("document.querySelectorAll('section, .figure, .canvas').length")
        for i in range(count):
            self.ask(f"document.querySelectorAll('section, .figure, .canvas')[{i}]?.scrollIntoView()")
            self.page.wait_for_timeout(2 * STEP)


def browser() -> str:
    """The program; the test is skipped where there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser is here to look at a page: none of {', '.join(NAMES)} is installed")
    return found


@contextmanager
def started() -> Iterator[Any]:
    """Chromium, for the pages of one module: while it runs, nothing else of the process can use asyncio."""
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install 'gpusim[dev]'")
    path = browser()
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


@contextmanager
def opened(
    chromium: Any, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False, touch: bool = False
) -> Iterator[Opened]:
    """The page of a file, when it is ready."""
    scheme = "dark" if dark else "light"
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, has_touch=touch)
    try:
        context.set_default_timeout(PATIENCE)
        found = Opened(context.new_page())
        found.page.on("console", lambda m: m.type in ("error", "warning") and found.complaints.append(m.text))
        found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
        found.page.on("request", lambda r: r.url.startswith(LOCAL) or found.requests.append(r.url))
        found.page.goto(path.as_uri())
        found.wait("document.documentElement.dataset.ready === 'true'")
        yield found
    finally:
        context.close()
