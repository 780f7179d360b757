"""The command line: the verbs in their order, each a file of `gpusim.cli.verbs` that is imported when it is asked for.

Exit codes: 0 done; 1 a bug, or a run of a grid that failed by one; 2 something the user can act on; 130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
from typing import Annotated

import typer

from gpusim.cli.verb import Lazy

app = typer.Typer(
    cls=Lazy,
    name="gpusim",
    help="Replay recorded GPU programs under competing swap, allocator and prefetch policies.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from gpusim.results.manifest import versions

        typer.echo(f"gpusim {versions()['gpusim'] or '(not installed)'}")
        raise typer.Exit()


@app.callback()
def top(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Options that stand before the verb."""


def main() -> None:
    """The `gpusim` script."""
    # What imports make stays: to look through it for garbage takes a twentieth of the time of a short run.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)  # nor need it be looked through once more at the end
    app(prog_name="gpusim")  # for `python -m gpusim` as well: completion is the script's


if __name__ == "__main__":
    main()
