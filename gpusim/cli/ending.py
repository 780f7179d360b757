"""How every verb ends: what it raises becomes a sentence on stderr and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from gpusim.base.errors import GpusimError


class VerbGroup(TyperGroup):
    """Turns what a verb raises into a sentence on stderr and an exit code."""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """As the base class does; options that are not there are answered as those of a verb are."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except Exception as error:
            if not _is_usage(error):
                raise
            _say(_usage(error, None))
            raise typer.Exit(2) from None

    def invoke(self, ctx: Any) -> Any:
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done
        except GpusimError as error:
            _say(f"{error}")
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            _say("interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:
            # The reader of the pipe has closed it; nothing more may be flushed to it at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(0) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                place = error.filename or "output"
                _say(f"{place}: the disk is full (what is finished is kept; free some space and run again)")
            else:
                _say(f"{error.filename or 'input or output'}: {error.strerror or error}")
            raise typer.Exit(2) from None
        except MemoryError:
            _say("this machine ran out of memory (a smaller input, or a run with fewer --jobs, needs less)")
            raise typer.Exit(2) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if _is_usage(error):
                _say(_usage(error, ctx))
                raise typer.Exit(2) from None
            if os.environ.get("GPUSIM_TRACEBACK") or _shows_itself(error):
                raise
            _say(f"internal error: {type(error).__name__}: {error}")
            _say("this is a bug in gpusim: run again with GPUSIM_TRACEBACK=1 for the traceback to report")
            raise typer.Exit(1) from None


def _shows_itself(error: Exception) -> bool:
    """What typer ends by itself: help where nothing was asked."""
    return hasattr(error, "exit_code") and hasattr(error, "show")


def _is_usage(error: Exception) -> bool:
    """An error of the command line itself."""
    return _shows_itself(error) and type(error).__name__ != "NoArgsIsHelpError"


def _usage(error: Any, ctx: Any) -> str:
    """Its sentence, and where the help is."""
    return f"{error.format_message().rstrip('.')} (`{(getattr(error, 'ctx', None) or ctx).command_path} --help`)"


def _say(text: str) -> None:
    typer.echo(f"gpusim: {text}", err=True)
