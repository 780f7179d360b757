"""Is there one word and one place for each verb's trace, machine and files, and do the words of before still work?"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from command_line import gpusim

from gpusim.base.errors import GpusimError, ProfileError
from gpusim.cli import complete, say
from gpusim.cli.app import app
from gpusim.cli.asked import experiment as asked
from gpusim.cli.verb import GROUPS, OPTIONS_ONCE, VERBS, help_of
from gpusim.cli.verb import load as load_verb
from gpusim.machine import words

CLI = Path(__file__).parents[2] / "gpusim" / "cli"
PATHS = [path for verb in VERBS for path in ([f"{verb}.{name}" for name in GROUPS[verb]] if verb in GROUPS else [verb])]
YAML = """
question: Which machine?
trace: gpt-medium-infer
profile: l4
memory: 80 %
policies: {place: best_fit, evict: lru}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(YAML)
    return path


# --- each option is stated once


def options(path: str) -> dict[str, Any]:
    return {option: p for p in load_verb(path).params for option in p.opts if p.param_type_name == "option"}


SHARED = ("--on", "--use", "--set", "--json", "--output", "--jobs", "--format", "--figures", "--device")


@pytest.mark.slow
@pytest.mark.parametrize("option", SHARED)
def test_an_option_of_several_verbs_has_one_short_form_everywhere(option: str) -> None:
    spelt = {path: tuple(found[option].opts) for path in PATHS if option in (found := options(path))}
    assert len(spelt) > 1 and len(set(spelt.values())) == 1, spelt


@pytest.mark.slow
def test_an_option_of_one_meaning_has_one_help_text() -> None:
    for option in ("--use", "--set", "--jobs"):
        assert len({found[option].help for path in PATHS if option in (found := options(path))}) == 1, option


@pytest.mark.parametrize("path", PATHS)
def test_every_verb_can_be_told_to_say_more_or_less(path: str) -> None:
    assert {"--verbose", "-v", "--quiet", "-q"} <= set(options(path))


@pytest.mark.parametrize("path", PATHS)
def test_the_line_of_a_verb_in_the_help_is_the_beginning_of_its_own(path: str) -> None:
    assert " ".join(load_verb(path).help.split()).startswith(help_of(path)) and help_of(path)[0].isupper()


@pytest.mark.slow
def test_functions_of_the_command_line_are_short() -> None:
    for file in CLI.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 80, f"{file}: {node.name}"
                assert len(node.args.args) + len(node.args.posonlyargs) <= 8, f"{file}: {node.name}"


@pytest.mark.slow
def test_help_of_all_verbs_imports_none_of_them() -> None:
    program = (
        "import sys\nfrom gpusim.cli.app import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "loaded = [name for name in sys.modules if name.startswith('gpusim.cli.verbs')]\n"
        "sys.exit(f'imported {loaded}' if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(f"  {verb} " in done.stdout for verb in VERBS)


# --- machines


@pytest.mark.parametrize(
    ("text", "found"),
    [("l4", (1, "l4")), ("4 x l40s", (4, "l40s")), ("2x l4", (2, "l4")), ("1 x l4", (1, "l4")),
     ("8 × l4(link.h2d=20 GB/s)", (8, "l4(link.h2d=20 GB/s)")), ("mine/4x.yaml", (1, "mine/4x.yaml"))],
)  # fmt: skip
def test_a_machine_is_one_word(text: str, found: tuple[int, str]) -> None:
    assert words.counted(text) == found


def test_machines_are_separated_by_commas_outside_of_parentheses() -> None:
    changed = "a40(link.h2d=20 GB/s, link.d2h=19 GB/s)"
    assert words.split([f"l4, {changed}", "l4"]) == ["l4", changed]


def test_no_gpus_and_too_many_are_refused() -> None:
    for text in ("0 x l4", "9999999999 x l4"):
        with pytest.raises(ProfileError, match=r"is no number of GPUs .write l4, or 2 x l4."):
            words.counted(text)


def test_a_machine_with_another_number_is_that_machine() -> None:
    assert words.load("l4(link.h2d=20 GB/s)").link.h2d.value == 20e9
    assert words.load("4 x l4").name == words.load("l4").name


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (("run", "eviction", "--on", "4 x l4"), "'4 x l4' is 4 GPUs, and a run simulates one (write l4)"),
        (("run", "eviction", "--set", "profile=4 x l4"), "'4 x l4' is 4 GPUs, and a run simulates one"),
        (("plan", "resnet50-train", "--plan", "vdnn", "--on", "2 x l4"), "'2 x l4' is 2 GPUs, and gpusim plan simulates one"),
        (("adapt", "resnet50-train", "--on", "l4,l40s"), "gpusim adapt takes one machine, not 2 (write --on l4)"),
        (("adapt", "resnet50-train"), "gpusim adapt needs a machine (write --on a100-pcie-40gb;"),
        (("oom", "gpt-medium-infer-snapshot", "--on", "l44"), "there is no profile 'l44' (did you mean 'l4'"),
        (("run", "layouts", "--on", "hgx-h1000"), "there is no profile 'hgx-h1000' (did you mean 'hgx-h100'"),
        (("profiles", "hgx-h100"), "'hgx-h100' is a machine of several GPUs and no profile (`gpusim machines hgx-h100`"),
        (("fit", "gpt2-small-train", "--on", "4 x l4, l40s"), "these machines are of 1 and 4 GPUs (ask for one number"),
        (("fit", "gpt2-small-train", "--on", "t4", "--context", "99 GiB"), "a CUDA context of 99 GiB leaves nothing of the"),
        (("run", "eviction", "--on", "l4", "--set", "profile=l4"), "--on and --set profile=... both name the machine"),
        (("run", "eviction", "--use", "a.py", "--set", "use=[a.py]"), "--use and --set use=... both name files of your own"),
        (("run", "eviction", "--use", "none.py"), "there is no file 'none.py' (--use takes a Python file"),
        (("offsets", "resnet50-train", "--on", "l4", "--capacity", "4 GiB"), "--on and --capacity both say"),
        (("validate", "l4", "--on", "l4"), "--on, --use and --set are for experiments"),
        (("faults", ".", "--on", "l4"), "--on, --use and --set are for an experiment that is to run"),
        (("run", "eviction", "-v", "-q"), "--verbose and --quiet contradict each other (give one of them)"),
        (("rum",), "there is no verb 'rum' (did you mean 'run'?)"),
        (("calibrate", "mesure"), "there is no verb 'mesure' (did you mean 'measure'?)"),
    ],
)
def test_what_cannot_be_is_one_sentence_with_a_way_out(said: tuple[str, ...], answer: str) -> None:
    assert answer in gpusim(*said, code=2).stderr


def test_a_machine_that_is_one_of_several_is_refused_with_its_place_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML.replace("profile: l4", "profile: 2 x l4"))
    said = gpusim("validate", tmp_path / "x.yaml", code=2).stderr
    assert ":4:" in said and "'2 x l4' is 2 GPUs, and a run simulates one" in said and "write l4" in said


@pytest.mark.slow
def test_an_experiment_runs_on_other_machines_with_files_of_ones_own(experiment: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("from gpusim import policy\n\n\n@policy.evict\ndef newest(last_use):\n    'New.'\n    return -last_use\n")
    said = ("--on", "l40s,a40(link.h2d=20 GB/s)", "--use", own, "--set", "policies.evict=newest", "--json")
    assert json.loads(gpusim("validate", experiment, *said).stdout)["profiles"] == 2
    loaded = asked(str(experiment), ["policies.evict=newest"], on=["l40s"], use=[str(own)])
    assert loaded.experiment.profile == ("l40s",) and loaded.experiment.use == (str(own),)
    assert loaded.experiment.question == "mine with policies.evict=newest, profile=l40s"


def test_files_of_ones_own_stand_beside_those_of_the_experiment(tmp_path: Path) -> None:
    for name in ("first", "second"):
        text = f"from gpusim import policy\n\n\n@policy.evict\ndef {name}(last_use):\n    'Own.'\n    return last_use\n"
        (tmp_path / f"{name}.py").write_text(text)
    path = tmp_path / "x.yaml"
    path.write_text(YAML.replace("evict: lru", "evict: [first, second]") + "use: [first.py]\n")
    loaded = asked(str(path), use=[str(tmp_path / "second.py")])
    assert [file.name for file in loaded.use] == ["first.py", "second.py"]


def test_adapt_evicts_by_a_policy_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text("from gpusim import policy\n\n\n@policy.evict\ndef newest(last_use):\n    'New.'\n    return -last_use\n")
    said = ("adapt", "resnet50-train", "--on", "a100-pcie-40gb", "--memory", "4 GiB", "--controller", "fixed", "--rounds", 1)
    lru, newest = (
        json.loads(gpusim(*said, "--evict", name, "--use", own, "--json").stdout)["rounds"][0] for name in ("lru", "newest")
    )
    assert lru["outcome"] == newest["outcome"] == "finished" and newest["time_ns"] != lru["time_ns"]
    assert "there is no evict policy 'newst' (did you mean 'newest'?)" in gpusim(
        *said, "--evict", "newst", "--use", own, code=2
    ).stderr  # fmt: skip
    assert "there is no file 'none.py' (--use takes a Python file" in gpusim(*said, "--use", "none.py", code=2).stderr


# --- what it was called before


@pytest.mark.parametrize(
    ("before", "now", "note"),
    [
        (("fit", "x.npz", "--profile", "h1000"), ("fit", "x.npz", "--on", "h1000"), "--profile is now --on"),
        (("fit", "x.npz", "--profile=h1000"), ("fit", "x.npz", "--on=h1000"), "--profile is now --on"),
        (
            ("calibrate", "compare", "none.csv", "--profile", "h1000"), ("calibrate", "compare", "none.csv", "--on", "h1000"),
            "--profile is now --on",
        ),
        (
            ("calibrate", "replay", "none", "--profile", "h1000"), ("calibrate", "replay", "none", "--on", "h1000"),
            "--profile is now --on",
        ),
        (
            ("adapt", "gpt-medium-infer-snapshot", "l4"), ("adapt", "gpt-medium-infer-snapshot", "--on", "l4"),
            "`gpusim adapt TRACE l4` is now `gpusim adapt TRACE --on l4`",
        ),
        (
            ("plan", "gpt-medium-infer-snapshot", "l4", "--plan", "vdnn"),
            ("plan", "gpt-medium-infer-snapshot", "--plan", "vdnn", "--on", "l4"),
            "`gpusim plan TRACE l4` is now `gpusim plan TRACE --on l4`",
        ),
    ],
)  # fmt: skip
def test_former_spellings_do_the_same_and_name_the_new_one(before: tuple[str, ...], now: tuple[str, ...], note: str) -> None:
    said = gpusim(*now, code=2).stderr
    assert gpusim(*before, code=2).stderr == f"gpusim: note: {note}\n{said}"
    assert gpusim(*before, "-q", code=2).stderr == said


def test_every_former_option_is_one_of_a_verb_that_has_the_new_one() -> None:
    for (verb, before), now in OPTIONS_ONCE.items():
        of = [options(path) for path in PATHS if path.rpartition(".")[2] == verb]
        assert any(now in found for found in of) and not any(before in found for found in of)


def test_a_machine_that_is_named_twice_is_refused() -> None:
    said = gpusim("adapt", "resnet50-train", "l4", "--on", "l40s", code=2).stderr
    assert "the machine is named twice, as 'l4' and with --on (leave the argument out)" in said


def test_a_verb_without_its_argument_is_a_usage_error() -> None:
    assert "Missing argument" in gpusim("run", code=2).stderr


def test_fragment_is_oom() -> None:
    assert gpusim("fragment", "--help").stdout.splitlines()[2] == gpusim("oom", "--help").stdout.splitlines()[2]
    assert "fragment" not in gpusim("--help").stdout


def test_arguments_of_before_are_not_shown() -> None:
    assert "before" not in gpusim("plan", "--help").stdout.lower()


# --- how much is said


def test_quiet_leaves_out_notes_and_verbose_tells_what_was_read(experiment: Path, tmp_path: Path) -> None:
    sets = ("--set", "trace=gpt-medium-infer-snapshot", "--set", "policies={place: best_fit}", "--set", "memory=capacity")
    assert "gpusim: note: gpt-medium-infer-snapshot does not say" in gpusim("validate", experiment, *sets).stderr
    assert gpusim("validate", experiment, *sets, "-q").stderr == ""
    said = gpusim("validate", experiment, "-v").stderr
    assert f"gpusim: experiment {experiment}: {experiment}" in said and said.splitlines()[-1].startswith("gpusim: done in ")


def test_how_much_is_said_ends_with_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    with say.as_asked(verbose=False, quiet=True):
        say.note("not this")
        say.warning("this")
    say.note("and this")
    assert capsys.readouterr().err == "gpusim: warning: this\ngpusim: note: and this\n"
    with pytest.raises(GpusimError), say.as_asked(verbose=True, quiet=True):
        pass


@pytest.mark.slow
def test_the_version_is_that_of_the_installed_distribution() -> None:
    from importlib.metadata import version

    assert gpusim("--version").stdout == f"gpusim {version('gpusim')}\n"
    done = subprocess.run([sys.executable, "-m", "gpusim", "--version"], capture_output=True, text=True)
    assert done.stdout == f"gpusim {version('gpusim')}\n"


# --- completion


def _completed(*typed: str) -> list[str]:
    """What bash is offered for a command line of which the last word is being typed."""
    variables = {"_GPUSIM_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(typed), "COMP_CWORD": str(len(typed) - 1)}
    program = "from gpusim.cli.app import app; app(prog_name='gpusim')"
    import os

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **variables})
    return done.stdout.split()


@pytest.mark.slow
def test_the_shell_completes_verbs_and_names() -> None:
    assert _completed("gpusim", "va") == ["validate"]
    assert "eviction" in _completed("gpusim", "run", "evic")
    assert _completed("gpusim", "metrics", "stall_sw") == ["stall_swap_in_ns", "stall_swap_out_ns"]


def test_completion_is_of_the_script_also_where_the_module_is_run() -> None:
    command = f"'{sys.executable}' -m gpusim --show-completion bash; exit $?"  # it looks for a shell among its parents
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("complete -o default -F _gpusim_completion gpusim")


def test_completion_knows_what_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("")
    (tmp_path / "mine.npz").write_text("")
    assert complete.experiments("unified_p") == ["unified_pingpong", "unified_policies"]
    assert complete.experiments("min") == ["mine.yaml"] and complete.traces("mi") == ["mine.npz", "mine.yaml"]
    assert complete.machines("l4,a100-pcie-4") == ["l4,a100-pcie-40gb"]
    assert "next_k" in complete.policies("ne") and complete.transforms("checkp") == ["checkpointing"]


def test_completion_of_names_compiles_and_reads_no_trace() -> None:
    program = (
        "import sys\nfrom gpusim.cli import complete\n"
        "assert all(f('') for f in (complete.experiments, complete.traces, complete.machines, complete.metrics))\n"
        "heavy = {'numpy', 'numba', 'matplotlib', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_app_is_one_command() -> None:
    assert typer.main.get_command(app).list_commands(None) == list(VERBS)  # type: ignore[attr-defined,arg-type]
