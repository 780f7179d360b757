"""Verbs that are imported when they are asked for, and what all of them have in common.

A verb is a file of `gpusim/cli/verbs`: its docstring is the help, its function `verb` has the arguments and options, each
stated there and nowhere else.  `gpusim --help` reads the docstrings without importing the files.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from gpusim.base.errors import suggest
from gpusim.cli import say
from gpusim.cli.ending import VerbGroup

LOADS = ("gpusim.cli.verbs",)  # packages whose modules are imported by name
ROOT = LOADS[0]
VERBS = (
    "run", "tune", "init", "validate", "report", "plot", "compare", "faults", "check", "record", "import", "fit", "adapt",
    "oom", "advise", "export", "monitor", "trace", "kernels", "offsets", "reproduce", "transform", "transforms", "plan",
    "serve", "experts", "models", "suspend", "mig", "failures", "cluster", "zoo", "profiles", "machines", "policies",
    "metrics", "schema",
    "calibrate",
)  # fmt: skip
GROUPS = {"calibrate": ("measure", "fit", "compare", "steps", "replay", "kernels", "all", "bundle")}
"""Verb -> the verbs below it."""
ONCE = {"fragment": "oom"}
"""What verbs were called before -> what they are called now."""
OPTIONS_ONCE = {
    ("fit", "--profile"): "--on", ("compare", "--profile"): "--on", ("replay", "--profile"): "--on",
    ("record", "--cudnn"): "--cudnn-workspace",
}  # fmt: skip
"""(verb, what an option was called before) -> what it is called now."""
VALUES = {"--uncertainty": "16"}
"""Option whose value may be left out -> the value that stands for none."""

LINED = "\b"
"""Before a paragraph of help whose lines stay apart, as click has it."""

_RENAMED = "gpusim.renamed"

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more on stderr: files that are read, and time taken.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say less on stderr: no progress and no notes.")]


class Verb(TyperCommand):
    """A verb with -v and -q, with options of former names, and options whose value may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments under the names that they have now, with the values that were left out."""
        whole: list[str] = []
        for word, following in zip(args, [*args, ""][1:], strict=True):
            option, equals, value = word.partition("=")
            if (now := OPTIONS_ONCE.get((str(self.name), option))) is not None:
                ctx.meta.setdefault(_RENAMED, []).append((option, now))
                option = now
            whole.append(f"{option}{equals}{value}")
            if word in VALUES and not following.isdigit():
                whole.append(VALUES[word])
        return list(super().parse_args(ctx, whole))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line, without arguments that are only accepted."""
        shown = [p for p in self.get_params(ctx) if not getattr(p, "hidden", False)]
        return [self.options_metavar or "", *(piece for p in shown for piece in p.get_usage_pieces(ctx))]

    def invoke(self, ctx: Any) -> Any:
        """Carry the verb out as loudly as asked; what it returns is the exit code."""
        verbose, quiet = ctx.params.pop("verbose"), ctx.params.pop("quiet")
        with say.as_asked(verbose=verbose, quiet=quiet):
            for before, now in ctx.meta.get(_RENAMED, ()):
                say.renamed(before, now)
            code = super().invoke(ctx)
        if code:
            raise typer.Exit(code)


class Lazy(VerbGroup):
    """The group of all verbs, or one of its groups: each is imported when it is asked for."""

    @property
    def below(self) -> str:
        """ "" for the group of all, else its name."""
        return self.name if self.name in GROUPS else ""

    def list_commands(self, ctx: Any) -> list[str]:
        """The verbs, in the order in which help lists them."""
        return list(GROUPS[self.below] if self.below else VERBS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """The verb of this name, or None."""
        name = name if self.below else ONCE.get(name, name)
        if name not in self.list_commands(ctx):
            return None
        if name not in self.commands:
            self.commands[name] = load(f"{self.below}.{name}".strip("."))
        return self.commands[name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One line for each, from the first lines of the files."""
        names = self.list_commands(ctx)
        room = formatter.width - 6 - max(map(len, names))
        with formatter.section("Commands"):
            formatter.write_dl([(name, _cut(help_of(f"{self.below}.{name}".strip(".")), room)) for name in names])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As the base class does; an unknown verb is answered with the nearest."""
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing and not args[0].startswith("-"):
            hint = suggest(args[0], self.list_commands(ctx)) or f"`{ctx.command_path} --help` lists them"
            ctx.fail(f"there is no verb '{args[0]}' ({hint})")
        return super().resolve_command(ctx, args)


def module(path: str) -> str:
    """The module of a verb: "calibrate.fit", "import"."""
    return f"{ROOT}.{path}{'_' if path == 'import' else ''}"


def help_of(path: str) -> str:
    """The first paragraph of a verb's help, read from its file."""
    file = Path(__file__).parent.joinpath("verbs", *module(path).removeprefix(f"{ROOT}.").split("."))
    text = (file / "__init__.py" if file.is_dir() else file.with_suffix(".py")).read_text("utf-8")
    return " ".join(text.split('"""', 2)[1].split("\n\n")[0].split())


def load(path: str) -> Any:
    """The command of one verb, or the group of verbs below it."""
    name = path.rpartition(".")[2]
    made = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    if path in GROUPS:
        made = typer.Typer(
            cls=Lazy, name=path, help=help_of(path), no_args_is_help=True, add_completion=False, rich_markup_mode=None
        )
        made.callback()(_nothing)
        return _named(typer.main.get_command(made), name)
    found = import_module(module(path))
    settings = getattr(found, "SETTINGS", {})
    made.command(name, cls=Verb, help=_lined(found.__doc__ or ""), context_settings=settings)(found.verb)
    made_too = typer.Typer(add_completion=False, rich_markup_mode=None)
    made_too.command()(_loudness)
    command = _named(typer.main.get_command(made), name)
    command.params += typer.main.get_command(made_too).params
    return command


def _lined(text: str) -> str:
    """The help with a mark before indented paragraphs, whose lines are then left as they are."""
    return text.replace("\n\n    ", f"\n\n{LINED}\n    ")


def _named(command: Any, name: str) -> Any:
    command.name = name
    return command


def _nothing() -> None:
    """A group has no options of its own."""


def _loudness(verbose: Verbose = False, quiet: Quiet = False) -> None:
    """Where typer reads the options that every verb has."""


def _cut(text: str, room: int) -> str:
    """The first sentence, shortened to so many characters at a word."""
    first = text.partition(". ")[0].rstrip(".")
    if len(first) <= room:
        return first
    return first[: room - 2].rpartition(" ")[0] + "..."
