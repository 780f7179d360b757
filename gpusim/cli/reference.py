"""The command line as Markdown, from the verbs themselves: `python -m gpusim.cli.reference > docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

_HEAD = """# The command line

Made by `python -m gpusim.cli.reference`; change the verbs in `gpusim/cli/app.py`, not this file.

Exit codes: 0 done · 1 a bug in gpusim, or a check that failed · 2 something you can act on, said in a sentence on stderr ·
130 interrupted. Results go to stdout, words about them to stderr; `--json` prints what the table shows, and more.
`GPUSIM_TRACEBACK=1` shows the traceback of a bug.
"""


def markdown() -> str:
    """All verbs with their arguments and options."""
    from gpusim.cli.app import app

    group: Any = typer.main.get_command(app)
    return "\n".join([_HEAD, *_verbs(group.commands)])


def _verbs(commands: dict[str, Any], before: str = "") -> Iterator[str]:
    """Each verb, and instead of a group the verbs in it."""
    for name, command in commands.items():
        if hasattr(command, "commands"):
            yield from _verbs(command.commands, f"{before}{name} ")
        else:
            yield _verb(f"{before}{name}", command)


def _verb(name: str, command: Any) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    usage = " ".join(["gpusim", name, *(_argument(p) for p in arguments), *(["[options]"] if options else [])])
    lines = [f"## {name}", "", str(command.help).strip(), "", f"    {usage}", ""]
    lines += [f"- `{_argument(p)}` {p.help}" for p in arguments if p.help]
    lines += [f"- `{', '.join([*p.opts, *p.secondary_opts])}` {p.help}" for p in options]
    return "\n".join(lines) + "\n"


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.rstrip("_").upper()).strip("[]")
    return name if parameter.required else f"[{name}]"


if __name__ == "__main__":
    print(markdown(), end="")
