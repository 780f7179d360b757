"""Does an experiment's YAML become the grid that it says, and is every mistake in it told at its place?"""

import math
import subprocess
import sys
from dataclasses import replace

import pytest

from gpusim.base.errors import ConfigError, GridError, PolicyError, TraceError
from gpusim.base.yaml import find
from gpusim.base.yaml.values import Capacity, PolicySpec
from gpusim.experiment.load import load_experiment
from gpusim.experiment.spec import expand, size

PLAIN = """question: Does it work?
trace: tiny.npz
profile: t4
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "tiny.npz").write_bytes(b"")
    (tmp_path / "mine.py").write_text("")

    def make(text):
        path = tmp_path / "e.yaml"
        path.write_text(text)
        return path

    return make


def messages(path, *args, **named):
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, *args, **named)
    return [(p.message, p.hint) for p in caught.value.problems]


def test_what_does_the_shortest_experiment_mean(write, tmp_path):
    loaded = load_experiment(write(PLAIN))
    (run,) = expand(loaded.experiment)
    assert (run.trace, run.profile, run.seed) == ("tiny.npz", "t4", 0)
    assert run.memory == run.host_memory == Capacity()
    assert (str(run.place), str(run.evict), str(run.prefetch)) == ("pytorch", "lru", "none")
    assert loaded.traces == {"tiny.npz": tmp_path / "tiny.npz"}
    assert loaded.profiles["t4"].name == "t4.yaml"


def test_is_the_grid_the_product_of_all_lists_in_a_fixed_order(write):
    text = PLAIN + (
        "memory: [60 %, 8 GiB, capacity]\n"
        "policies:\n  evict: [lru, 'cost_aware(staleness=2)', {random: {weight: 0.5}}, {fifo: }]\n"
        "  prefetch: next_k(k=4, far=1e3)\nseed: [1, 2]\n"
    )
    experiment = load_experiment(write(text)).experiment
    runs = expand(experiment)
    assert len(runs) == size(experiment) == 3 * 4 * 2
    assert [(str(r.memory), str(r.evict), r.seed) for r in runs[:3]] == [
        ("60 %", "lru", 1),
        ("60 %", "lru", 2),
        ("60 %", "cost_aware(staleness=2)", 1),
    ]
    assert runs[4].evict == PolicySpec("random", (("weight", 0.5),))
    assert runs[0].prefetch == PolicySpec("next_k", (("far", 1000.0), ("k", 4)))
    assert [str(r.memory) for r in runs[::8]] == ["60 %", "8 GiB", "capacity"]
    assert len({r.hash for r in runs}) == len(runs)


@pytest.mark.slow
def test_is_a_run_known_by_the_same_name_in_every_process(write):
    path = write(PLAIN + "memory: 60 %\n")
    (run,) = expand(load_experiment(path).experiment)
    code = (
        "from pathlib import Path; from gpusim.experiment.load import load_experiment as l;"
        f"from gpusim.experiment.spec import expand; print(expand(l(Path({str(path)!r})).experiment)[0].hash)"
    )
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == run.hash
    assert replace(run, log=True).hash == run.hash != replace(run, seed=1).hash


@pytest.mark.parametrize(
    ("capacity", "bytes_"),
    [(Capacity(), 1000), (Capacity(bytes=300), 300), (Capacity(fraction=0.6), 420), (Capacity(fraction=0.9999), 700)],
)
def test_how_many_bytes_is_a_capacity(capacity, bytes_):
    assert capacity.resolve(footprint=700, machine=1000) == bytes_


def test_is_a_grid_by_mistake_refused(write):
    sets = ["seed=" + ",".join(map(str, range(1001))), "memory=60 %,50 %"]
    experiment = load_experiment(write(PLAIN), sets).experiment
    with pytest.raises(GridError, match=r"2,002 runs \(2 x 1001\).*--allow-large"):
        expand(experiment)
    assert len(expand(experiment, allow_large=True)) == 2002


@pytest.mark.slow
def test_is_a_grid_of_millions_refused_without_being_made(write):
    many = ",".join(map(str, range(2000)))
    evict = ",".join(f"lru(k={i})" for i in range(2000))
    with pytest.raises(GridError, match="4,000,000 runs"):
        expand(load_experiment(write(PLAIN), [f"seed={many}", f"policies.evict={evict}"]).experiment)


def test_is_everything_wrong_told_at_once_and_at_its_place(write):
    path = write(
        "question: Which?\n"
        "trase: x\n"
        "trace: [tiny.npz, tinny.npz, 5]\n"
        "profile: a100\n"
        "memory: [60 %, 450 GB/s, 12]\n"
        "use: [nope.py]\n"
        "policies:\n"
        "  evict: [lru, 'a(b', {belady: {x: [1]}}]\n"
        "  prefech: none\n"
        "seed: on\n"
        "seed: 1\n"
        "options: {log: on}\n"
        "figures: [adress_map]\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_experiment(path)
    told = [(p.line, p.col, p.message.split(": ")[-1]) for p in caught.value.problems]
    assert told == [
        (2, 1, "unknown key 'trase'"),
        (3, 19, "there is no trace 'tinny.npz'"),
        (3, 30, "'trace[2]' must be text, not 5"),
        (4, 10, "there is no profile 'a100'"),
        (5, 16, "'450 GB/s' is a rate, but a size is wanted"),
        (5, 26, "a size is wanted"),
        (6, 7, "there is no file 'nope.py' beside the experiment or in the current folder"),
        (8, 16, "'a(b' is not a policy"),
        (8, 23, "parameter 'x' of 'belady' is [1], neither a number nor text"),
        (9, 3, "unknown key 'prefech' in 'policies'"),
        (10, 7, "'seed' must be a whole number, not 'on'"),
        (11, 1, "key 'seed' is given twice"),
        (12, 16, "'options.log' must be true or false, not 'on'"),
        (13, 11, "'figures[0]' cannot be 'adress_map'"),
    ]
    hints = [p.hint for p in caught.value.problems]
    assert "did you mean 'trace'?" in hints[0]
    assert "did you mean 'a100-pcie-40gb'" in hints[3]
    assert "'450 GB'" in hints[4]
    assert "a bracket is missing" in hints[7]
    assert "did you mean 'prefetch'?" in hints[9]
    assert "did you mean 'address_map'?" in hints[13]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("memory: []", "an empty list"),
        ("memory: 0 %", "no memory at all"),
        ("memory: [60 %, 60 %]", "stands twice"),
        ("seed: -1", "greater than or equal to 0"),
        ("seed: 1.5", "whole number"),
        ("jobs: 0", "greater than or equal to 1"),
        ("policies: lru", "a mapping of keys to values"),
        ("policies: {evict: 'lru(k=1, k=2)'}", "gives parameter 'k' twice"),
        ("policies: {evict: 'lru(k=nan)'}", "not a number"),
        ("policies: {evict: 'lru(k)'}", "is not a parameter"),
        ("policies: {evict: {lru: 3}}", "must be a mapping"),
        ("bounds: yes", "'yes' is none of true, false, search"),
    ],
)
def test_is_a_senseless_value_refused(write, line, message):
    ((said, _),) = messages(write(PLAIN + line + "\n"))
    assert message in said


def test_is_a_list_where_the_file_should_be_a_mapping_refused(write):
    assert messages(write("- a\n- b\n")) == [("the file must be a mapping of keys to values", "")]


def test_does_set_replace_values_and_make_axes(write):
    path = write(PLAIN + "policies: {evict: belady}\n")
    sets = ["policies.evict=lru,belady", "memory=60 %", "policies.prefetch=next_k(k=2, j=3),none", "seed=[3, 4]"]
    e = load_experiment(path, sets).experiment
    assert [str(p) for p in e.policies.evict] == ["lru", "belady"]
    assert [str(p) for p in e.policies.prefetch] == ["next_k(j=3, k=2)", "none"]
    assert [str(m) for m in e.memory] == ["60 %"]
    assert e.seed == (3, 4)
    assert [str(p) for p in load_experiment(path).experiment.policies.evict] == ["belady"]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("polices.evict=lru", "unknown key 'polices'", "did you mean 'policies'?"),
        ("policies.evit=lru", "unknown key 'evit' in 'policies'", "did you mean 'evict'?"),
        ("question.x=1", "unknown key 'x' in 'question'", ""),
        ("memory", "has no value", "write --set key=value"),
        ("seed=[1", "cannot be read", ""),
        ("seed={a: 1, a: 2}", "cannot be read: key 'a' is given twice", ""),
        ("memory=12", "memory: 12 has no unit", "'12 GiB'"),
        ("profile=rtx-409", "there is no profile 'rtx-409'", "did you mean 'rtx-4090'?"),
        ("memory=", "a size is wanted, not nothing", ""),
    ],
)
def test_is_a_wrong_set_named(write, text, message, hint):
    with pytest.raises(ConfigError) as caught:
        load_experiment(write(PLAIN), [text])
    (problem,) = caught.value.problems
    assert problem.file == f"--set {text}"
    assert message in problem.message
    assert hint in problem.hint


def test_are_all_wrong_sets_named_at_once(write):
    assert len(messages(write(PLAIN), ["a=1", "memory", "seed=3"])) == 2


def test_is_the_registry_asked_at_the_place_of_each_policy(write, tmp_path):
    seen = []

    def check(kind, spec):
        seen.append((kind, str(spec)))
        if spec.name == "lruu":
            raise PolicyError("there is no evict policy 'lruu'", hint="did you mean 'lru'?")

    path = write(PLAIN + "policies:\n  evict: [lru, lruu]\nuse: [mine.py]\n")
    used = []
    with pytest.raises(ConfigError) as caught:
        load_experiment(path, use=used.append, check_policy=check)
    (problem,) = caught.value.problems
    assert (problem.line, problem.col, problem.hint) == (5, 16, "did you mean 'lru'?")
    assert used == [tmp_path / "mine.py"]
    assert ("evict", "lru") in seen


def test_is_a_file_of_policies_that_fails_told_at_its_place(write):
    def use(path):
        raise PolicyError("it does not compile", f"{path}:3")

    ((said, _),) = messages(write(PLAIN + "use: [mine.py]\n"), use=use)
    assert "it does not compile" in said


def test_where_is_a_name_looked_for(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    for folder in (".", "here"):
        (tmp_path / folder / "x.npz").write_bytes(b"")
    monkeypatch.chdir(tmp_path / "here")
    assert find.find("trace", "x", base=tmp_path) == tmp_path / "here" / "x.npz"
    assert find.find("trace", "../x.npz") == tmp_path / "x.npz"
    assert find.find("trace", str(tmp_path / "x.npz")) == tmp_path / "x.npz"
    with pytest.raises(TraceError, match="there is no trace 'nowhere'"):
        find.find("trace", "nowhere")
    with pytest.raises(TraceError):
        find.find("trace", "")


def test_are_shipped_names_found_without_a_checkout(tmp_path, monkeypatch):
    """As in a wheel: the package lies in site-packages, its data below it, and no pyproject.toml beside it."""
    shipped = tmp_path / "site-packages" / "gpusim" / "_shipped" / "hardware_profiles"
    shipped.mkdir(parents=True)
    (shipped / "mine.yaml").write_text("")
    monkeypatch.setattr(find, "_PACKAGE", tmp_path / "site-packages" / "gpusim")
    assert find.names("profile") == ["mine"]
    assert find.find("profile", "mine") == shipped / "mine.yaml"
    assert find.names("trace") == []


def test_is_the_fraction_exact_enough():
    assert Capacity(fraction=0.1 + 0.2).resolve(10, 0) == math.ceil(3.0000000000000004)
