"""Do policies answer to what they were called before, and are results of both names one?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpusim.base.errors import PolicyError
from gpusim.cli.app import app
from gpusim.engine.run.simulate import simulate
from gpusim.experiment import load
from gpusim.experiment.tasks import plan
from gpusim.machine.catalogue import load as load_profile
from gpusim.policies import registry
from gpusim.policies.entry import KINDS
from gpusim.results.folder import load_folder, note_results
from gpusim.results.renamed import POLICIES, policy
from gpusim.results.seal import read_sealed, write_sealed

ALIASES = [(kind, alias, entry.name) for kind in KINDS for entry in registry.entries(kind) for alias in entry.aliases]
YAML = """
question: Under which name?
trace: gpt-medium-infer
profile: l4
memory: 80 %
policies: {{place: {place}, evict: lru, release: "{release}"}}
"""


def gpusim(*said: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in said])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


def test_there_are_aliases_and_none_is_a_name_or_stands_twice() -> None:
    assert {("place", "device", "cuda_malloc"), ("place", "size_classes", "slab"), ("place", "rmm_fixed", "rmm_fixed_size"),
            ("release", "recall", "finite_context")} <= set(ALIASES)  # fmt: skip
    assert {(kind, alias): name for kind, alias, name in ALIASES} == POLICIES  # each has the name of a policy
    for kind in KINDS:
        names = [entry.name for entry in registry.entries(kind)]
        names += [alias for of, alias, _ in ALIASES if of == kind]
        assert len(names) == len(set(names))


@pytest.mark.parametrize(("kind", "alias", "name"), ALIASES)
def test_an_alias_is_found_explained_and_never_listed(kind: str, alias: str, name: str) -> None:
    assert registry.find(kind, alias) is registry.find(kind, name)
    assert alias not in [entry.name for entry in registry.entries(kind)]
    said = gpusim("policies", alias).stdout
    assert said.startswith(f"{name} ({kind}") and f"formerly {alias}" in said
    assert policy(kind, f"{alias}(x=1)") == f"{name}(x=1)" and policy(kind, name) == name


def test_both_names_are_one_run_with_one_key(tmp_path: Path) -> None:
    for name, place, release in (("old", "size_classes", "recall(ahead=4)"), ("new", "slab", "finite_context(ahead=4)")):
        (tmp_path / f"{name}.yaml").write_text(YAML.format(place=place, release=release))
    plans = [plan(load.experiment(str(tmp_path / f"{name}.yaml")), tmp_path / "out") for name in ("old", "new")]
    assert [task.key for task in plans[0].tasks] == [task.key for task in plans[1].tasks]
    both = tmp_path / "both.yaml"
    both.write_text(YAML.format(place="[size_classes, slab]", release="none"))
    assert len(plan(load.experiment(str(both)), tmp_path / "out").grid) == 1
    spec = plans[0].grid[0].spec
    assert (str(spec.place), str(spec.release)) == ("slab", "finite_context(ahead=4)")


def test_a_mistake_in_a_parameter_names_the_policy_as_it_is_called_now(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML.format(place="size_classes(pages=1)", release="none"))
    said = gpusim("validate", tmp_path / "x.yaml", code=2).stderr
    assert ":6:" in said and "policy 'slab' has no parameter 'pages'" in said and "'page'" in said


@pytest.mark.slow
def test_a_run_under_the_former_name_reports_the_new_one_and_compares_with_old_results(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML.format(place="device", release="none"))
    gpusim("run", tmp_path / "x.yaml", "-o", tmp_path / "new", "--no-figures")
    assert [result.spec["place"] for result in load_folder(tmp_path / "new")] == ["cuda_malloc"]
    gpusim("run", tmp_path / "x.yaml", "-o", tmp_path / "old", "--no-figures")
    (run,) = (path.name for path in (tmp_path / "old" / "runs").iterdir() if _is_of_grid(tmp_path / "old", path.name))
    path = tmp_path / "old" / "runs" / run / "result.json"
    text = read_sealed(path)
    write_sealed(path, {**text, "spec": {**text["spec"], "place": "device"}})  # as it was written before
    note_results(tmp_path / "old", [run])
    assert '"place": "device"' in path.read_text()
    assert [result.spec["place"] for result in load_folder(tmp_path / "old")] == ["cuda_malloc"]
    rows = json.loads(gpusim("compare", tmp_path / "old", tmp_path / "new", "--json").stdout)
    assert [(row["A"], row["B"]) for row in rows] == [("equal", "equal")]
    assert "cuda_malloc" in gpusim("compare", tmp_path / "old").stdout


def _is_of_grid(folder: Path, key: str) -> bool:
    return key in json.loads((folder / "manifest.json").read_text())["runs"]


def test_a_policy_of_ones_own_cannot_take_a_former_name(tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "from gpusim import policy\n\n\n@policy.release\nclass recall:\n    'Own.'\n\n"
        "    def state(capacity, params): ...\n    def release(S, X, P, held, allocated, capacity, size, now): ...\n"
    )
    with pytest.raises(PolicyError, match=r"'recall' is a former name of release policy 'finite_context' .give yours another"):
        registry.load_user_file(own)


def test_simulate_knows_both_names() -> None:
    from gpusim.base.yaml.find import find
    from gpusim.trace.files import load_trace

    trace, machine = load_trace(find("trace", "gpt-medium-infer")), load_profile("l4")
    one, other = (simulate(trace, machine, place=place) for place in ("device", "cuda_malloc"))
    assert one.metrics == other.metrics and one.spec == other.spec and one.spec["place"] == "cuda_malloc"
