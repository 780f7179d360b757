"""The activities of runs that kept their event log, for figures of what happened when."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.base.errors import ResultError
from gpusim.results.activities import Activities, activities
from gpusim.results.result import Result
from gpusim.show.programs import RanProgram, programs

NO_LOG = "No run kept its event log: --log keeps it."


def timelines(
    results: Sequence[Result], ran: Sequence[RanProgram] | None = None
) -> tuple[list[tuple[Result, Activities]], str]:
    """Of the results those with a log from which rows can be made, each with its rows; and why there are none of others.

    ran  of each result, its program; without it they are looked for by name
    """
    logged = [i for i, r in enumerate(results) if r.logged]
    there = ran if ran is not None else programs(results)
    found, why = [], "" if logged else NO_LOG
    for i in logged:
        try:
            found.append((results[i], activities(results[i], there[i].trace)))
        except ResultError as error:  # a log of an older version, or of a program that is gone
            why = why or f"{error.message[0].upper()}{error.message[1:]}{f': {error.hint}' if error.hint else ''}."
    return found, why
