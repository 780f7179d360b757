"""Puts what a machine's rows say into its profile of the catalogue (a developer's tool):

    python -m gpusim.show.calibration_refit && python -m gpusim.show.calibration_tables &&
        python tests/experiment/test_experiments.py

Only rows that are not held out, so that the others still prove something.  A number is replaced where at least LEAST rows say
it (one that the catalogue lacks: any), and they do not contradict a measured one: rows that do were measured with another
program or on another host, and which of them the profile is to describe is for its author to decide.  These are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpusim.base.files import write_text
from gpusim.base.yaml import find
from gpusim.calibrate.compare.score import ENOUGH
from gpusim.calibrate.fit import yaml_text
from gpusim.calibrate.fit.estimate import Curve, Estimate, said_by
from gpusim.calibrate.fit.fitting import Fitted, fit
from gpusim.calibrate.rows import gpus, read
from gpusim.machine import catalogue
from gpusim.machine.catalogue import quantities
from gpusim.show.calibration_tables import DATA

LEAST = 3  # rows
APART = 0.1
"""Measured numbers that differ by more are of different things."""


def main() -> None:
    rows = read(DATA / "hardware_measured.csv")
    for gpu in gpus(rows):
        mine = [r for r in rows if r.gpu == gpu]
        if len(mine) >= ENOUGH and gpu.lower() in catalogue.names():
            fitted = fit(mine, catalogue.load(gpu.lower()))
            path = find.find("profile", gpu.lower())
            write_text(path, renewed(path.read_text(encoding="utf-8"), fitted))
            catalogue.load(gpu.lower())
            for line in kept(fitted):
                print(f"{gpu.lower()}: {line}")


def taken(fitted: Fitted, one: Estimate | Curve) -> bool:
    """Whether the catalogue is to have it."""
    old = dict(quantities(fitted.base)).get(one.path)
    if isinstance(one, Curve) or old is None:
        return True
    if len(one.rows) < LEAST or old.basis != "measured":
        return len(one.rows) >= LEAST
    return abs(one.value / old.value - 1) <= APART


def kept(fitted: Fitted) -> Iterator[str]:
    """What the rows say and the catalogue does not take."""
    old = dict(quantities(fitted.base))
    for one in fitted.estimates:
        if isinstance(one, Estimate) and one.path in old and not taken(fitted, one):
            change = one.value / old[one.path].value - 1
            if abs(change) > APART:
                yield f"{one.path} stays {old[one.path].text(digits=4)} ({change:+.0%} by {len(one.rows)} rows)"


def renewed(text: str, fitted: Fitted) -> str:
    """The profile's text with the numbers that are taken; all other lines stay as they are, but for sources without use."""
    new = dict(quantities(fitted.profile))
    for one in fitted.estimates:
        if not taken(fitted, one):
            continue
        part, name = one.path.split(".", 1)
        if isinstance(one, Curve):
            text = _line(text, part, name, yaml_text.curve(one.points), f"{one.how}, {said_by(one.rows)}")
        else:
            text = _line(text, part, name, yaml_text.quantity(new[one.path]))
            text = _source(text, new[one.path].source, fitted.profile.sources[new[one.path].source])
    return _used(text)


def _line(text: str, part: str, name: str, value: str, comment: str = "") -> str:
    """`name` of the section `part` as `value`."""
    if not re.search(rf"^{part}:", text, re.M):
        text = f"{text.rstrip()}\n\n{part}:\n"
    begin = re.search(rf"^{part}:.*\n", text, re.M)
    assert begin is not None
    end = re.compile(r"^(?=\S)|\Z", re.M).search(text, begin.end())
    assert end is not None
    body = text[begin.end() : end.start()]
    found = re.search(rf"^(?:  #.*\n)?  {name}:( *).*\n(?:    .*\n)*", body, re.M)
    head = f"  # {comment}\n" if comment else ""
    line = f"{head}  {name}:{found[1] if found else ' '}{value}\n"
    if found:
        body = body[: found.start()] + line + body[found.end() :]
    else:
        body = f"{body.rstrip()}\n{line}" if body.strip() else line
        body += "\n" if end.start() < len(text) else ""
    return text[: begin.end()] + body + text[end.start() :]


def _source(text: str, key: str, what: str) -> str:
    return _line(text, "sources", re.escape(key), yaml_text.word(what)).replace(re.escape(key), key)


def _used(text: str) -> str:
    """Without sources that no number names any more."""
    numbers = text.partition("\nsources:")[2].partition("\n\n")[2]
    named = set(re.findall(r"source: (\"[^\"]*\"|[^,}]+)", numbers))
    head, _, rest = text.partition("\nsources:\n")
    block, blank, rest = rest.partition("\n\n")
    lines = [line for line in block.splitlines() if line.split(":")[0].strip().strip('"') in {n.strip('" ') for n in named}]
    return f"{head}\nsources:\n" + "\n".join(lines) + blank + rest


if __name__ == "__main__":
    main()
