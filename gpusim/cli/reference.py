"""The command line as Markdown, from the verbs themselves: `python -m gpusim.cli.reference > docs/cli.md`."""

from __future__ import annotations

from typing import Any

from gpusim.cli.verb import GROUPS, LINED, VERBS, load

_HEAD = """# The command line

Made by `python -m gpusim.cli.reference`; change the verbs in `gpusim/cli/verbs`, not this file.

    gpusim VERB TRACE      --on MACHINE[,MACHINE] --use FILE                    verbs that take a program
    gpusim VERB EXPERIMENT --on MACHINE[,MACHINE] --use FILE --set KEY=VALUE    verbs that take an experiment
    gpusim VERB FOLDER                                                          verbs that take results

A machine is one word: a name of `gpusim profiles` (`l40s`), the same with other numbers (`"l40s(link.h2d=20 GB/s)"`), a file
(`mine.yaml`), or several GPUs of one (`"4 x l40s"`, which `fit` understands; a run simulates one). FILE holds policies and
transforms of your own. Every verb also has

- `--verbose, -v` Say more on stderr: files that are read, and time taken.
- `--quiet, -q` Say less on stderr: no progress and no notes; warnings and errors stay.

`gpusim --version` prints the version, `gpusim --install-completion` makes the shell complete verbs, options and the names of
experiments, traces, machines, policies, transforms and metrics. `python -m gpusim` is the same command.

Exit codes: 0 done · 1 a bug in gpusim, or a check that failed · 2 something you can act on, said in a sentence on stderr ·
130 interrupted. Results go to stdout, words about them to stderr; `--json` prints what the table shows, and more.
`GPUSIM_TRACEBACK=1` shows the traceback of a bug.
"""
_EVERYWHERE = ("verbose", "quiet")


def markdown() -> str:
    """All verbs with their arguments and options."""
    paths = [path for verb in VERBS for path in ([f"{verb}.{name}" for name in GROUPS[verb]] if verb in GROUPS else [verb])]
    return "\n".join([_HEAD, *(_verb(path.replace(".", " "), load(path)) for path in paths)])


def _verb(name: str, command: Any) -> str:
    shown = [p for p in command.params if not getattr(p, "hidden", False) and p.name not in _EVERYWHERE]
    arguments = [p for p in shown if p.param_type_name == "argument"]
    options = [p for p in shown if p.param_type_name == "option"]
    usage = " ".join(["gpusim", name, *(_argument(p) for p in arguments), *(["[options]"] if options else [])])
    lines = [f"## {name}", "", str(command.help).strip().replace(f"{LINED}\n", ""), "", f"    {usage}", ""]
    lines += [f"- `{_argument(p)}` {p.help}" for p in arguments if p.help]
    lines += [f"- `{', '.join([*p.opts, *p.secondary_opts])}` {p.help}" for p in options]
    return "\n".join(lines) + "\n"


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.rstrip("_").upper()).strip("[]")
    return name if parameter.required else f"[{name}]"


if __name__ == "__main__":
    print(markdown(), end="")
