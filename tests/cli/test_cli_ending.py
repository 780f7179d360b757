"""How does the command line start, and how does each verb end when something goes wrong?"""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer import Typer
from typer.testing import CliRunner

from gpusim.base.errors import PolicyError
from gpusim.base.text import table
from gpusim.cli import reference
from gpusim.cli.app import app
from gpusim.cli.ending import VerbGroup
from gpusim.cli.output import emit_json

VERBS = ["run", "validate", "plot", "compare", "check", "import", "trace", "profiles", "policies", "metrics", "schema"]


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys\nfrom gpusim.cli.app import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'numba', 'simpy', 'matplotlib', 'pydantic', 'yaml'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {verb} " in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_says_something(verb: str) -> None:
    shown = CliRunner().invoke(app, [verb, "--help"])
    assert shown.exit_code == 0
    assert len(shown.output.splitlines()[2].strip()) > 20


def test_each_example_in_the_help_has_a_line_of_its_own() -> None:
    shown = CliRunner().invoke(app, ["serve", "--help"]).output.splitlines()
    assert sum(line.startswith("      gpusim serve ") for line in shown) == 4
    assert "\b" not in reference.markdown()


def test_an_unknown_verb_or_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["rum"]).exit_code == 2
    assert CliRunner().invoke(app, ["run", "--job", "two"]).exit_code == 2
    for words, place in ((["--foo"], "gpusim"), (["calibrate", "--foo"], "gpusim calibrate")):
        done = CliRunner().invoke(app, words, prog_name="gpusim")
        assert (done.exit_code, done.stderr) == (2, f"gpusim: No such option: --foo (`{place} --help`)\n")


def _ends(raises: Callable[[], object]) -> tuple[int, str]:
    """Exit code and stderr of a verb that raises this."""
    made = Typer(cls=VerbGroup, pretty_exceptions_enable=False)

    @made.command()
    def verb() -> None:
        raises()

    @made.command()
    def other() -> None:
        """A second verb makes it a group."""

    done = CliRunner().invoke(made, ["verb"])
    return done.exit_code, done.stderr


def _raiser(error: BaseException) -> Callable[[], object]:
    def throw() -> None:
        raise error

    return throw


def test_an_error_for_the_user_is_one_sentence_and_exit_2() -> None:
    code, said = _ends(_raiser(PolicyError("there is no policy 'lur'", "x.yaml:3", "did you mean 'lru'?")))
    assert (code, said) == (2, "gpusim: x.yaml:3: there is no policy 'lur' (did you mean 'lru'?)\n")


def test_a_full_disk_is_exit_2_and_says_so() -> None:
    code, said = _ends(_raiser(OSError(errno.ENOSPC, "No space left on device", "/out/summary.csv")))
    assert code == 2
    assert "/out/summary.csv: the disk is full" in said


def test_a_forbidden_file_is_exit_2_and_names_it() -> None:
    code, said = _ends(_raiser(PermissionError(errno.EACCES, "Permission denied", "/out")))
    assert (code, said) == (2, "gpusim: /out: Permission denied\n")


def test_a_bug_is_exit_1_and_says_how_to_report_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSIM_TRACEBACK", raising=False)
    code, said = _ends(_raiser(KeyError("x")))
    assert code == 1
    assert "internal error: KeyError" in said and "GPUSIM_TRACEBACK=1" in said and "Traceback (most" not in said


def test_ctrl_c_is_exit_130() -> None:
    assert _ends(_raiser(KeyboardInterrupt()))[0] == 130


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_error() -> None:
    program = "from gpusim.cli.app import main; import sys; sys.argv = ['gpusim', '--help']; main()"
    command = f"{sys.executable} -c \"{program}\" | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert "rror" not in done.stderr


def test_tables_align_and_mark_what_is_missing() -> None:
    rows = [{"name": "lru", "time": 1.25, "count": 12345}, {"name": "belady", "time": None, "count": 7}]
    assert table(rows, ["name", "time", "count"]) == (
        "name     time   count\n"
        "------  -----  ------\n"
        "lru     1.250  12,345\n"
        "belady      -       7"
    )


def test_json_has_null_for_what_is_not_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json([{"a": float("inf"), "b": float("nan"), "c": 1.5}])
    assert json.loads(capsys.readouterr().out) == [{"a": None, "b": None, "c": 1.5}]
