"""The code for a run of a results folder, or for a proposal of `gpusim advise`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError, ResultError
from gpusim.base.files import read_json
from gpusim.base.units import show_bytes
from gpusim.base.yaml.find import find
from gpusim.experiment.ran import load_trace_of
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.results.folder import RUNS, load_result, run_folders
from gpusim.results.manifest import versions
from gpusim.results.named import key_of
from gpusim.results.result import Result
from gpusim.show.torch_plan.file import written
from gpusim.show.torch_plan.plan import TorchPlan, torch_plan
from gpusim.show.view import human, main_metric, value
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

ADVICE = "advice.json"


def code_of(path: Path, run: str | None = None, own: Registry = SHIPPED) -> tuple[str, str]:
    """(a name, Python code) for a run: `path` is its folder, or a results folder, or the folder that `gpusim advise` left.

    run  number or key of the run, rank of the proposal; None: the best
    Raises ResultError where there is none, or where PyTorch cannot do what it did.
    """
    if (path / ADVICE).is_file() and path.parent.name != RUNS:  # a run's own file of this name has hints to the driver
        return _of_advice(path, run)
    if path.parent.name == RUNS:
        path, run = path.parent.parent, run or path.name
    kept = {folder.name: folder for folder in run_folders(path)} if path.is_dir() else {}
    if not kept:
        raise ResultError("there is no run here", str(path), "give a results folder, one of its runs, or a folder of advice")
    run = run and key_of(run, [*kept], path)
    found = [load_result(folder, log=False, timeline=False) for name, folder in kept.items() if run in (None, name)]
    chosen = _best(found, path)
    try:
        plan = torch_plan(chosen.spec, chosen.metrics, _recorded(chosen, path, own))
    except ResultError as error:
        others = "" if run else _sayable([r for r in found if r.key != chosen.key], path, own)
        raise ResultError(error.message, chosen.key, error.hint or others) from None
    return chosen.key, written(plan, _provenance(chosen, path))


def _best(found: Sequence[Result], path: Path) -> Result:
    """The finished run whose main metric is best, of equal ones the first by key."""
    done = [r for r in found if r.finished]
    if not done:
        raise ResultError("no run here finished, so there is no plan that works", str(path))
    metric = main_metric(done)
    return min(done, key=lambda r: (v if (v := value(r, metric)) is not None else float("inf"), r.key))


def _sayable(found: Sequence[Result], path: Path, own: Registry) -> str:
    """The best of the others that PyTorch can do, as a hint."""
    done = [r for r in found if r.finished]
    metric = main_metric(done) if done else ""
    for r in sorted(done, key=lambda r: (v if (v := value(r, metric)) is not None else float("inf"), r.key)):
        try:
            torch_plan(r.spec, r.metrics, _recorded(r, path, own))
        except GpusimError:
            continue
        return f"the best that can be said: --run {r.key}"
    return ""


def _recorded(result: Result, path: Path, own: Registry) -> Trace:
    """The trace before the run's transforms.  ResultError where its file is not what ran any more."""
    wanted = result.spec.get("trace_hash")
    if wanted is not None and load_trace_of(result, path, own=own).content_hash != wanted:
        said = f"the trace '{result.spec['trace']}' has changed since it ran"
        raise ResultError(said, result.key, "run the experiment again")
    return load_trace(find("trace", str(result.spec["trace"]), path))


def _provenance(result: Result, path: Path) -> list[str]:
    spec = result.spec
    metric = main_metric([result])
    ran = {key: spec[key] for key in ("trace", "transform", "plan", "profile", "memory", "place") if spec.get(key) is not None}
    return [
        f"From run {result.key} of {path.name}, gpusim {versions()['gpusim']}:",
        *(f"    {key:<10} {show_bytes(int(ran[key])) if key == 'memory' else ran[key]}" for key in ran),
        f"    {metric.removesuffix('_ns'):<10} {human(metric, value(result, metric))}",
        f"Written by: gpusim export {path.name} --as torch --run {result.key}",
    ]


def _of_advice(folder: Path, rank: str | None) -> tuple[str, str]:
    told = read_json(folder / ADVICE)
    proposals = told.get("proposals") or []
    if not proposals:
        raise ResultError("this advice is to leave the program as it is, so there is nothing to write", str(folder))
    number = rank or "1"
    chosen = next((p for p in proposals if str(p["rank"]) == number), None)
    if chosen is None:
        raise ResultError(f"there is no proposal {number}", str(folder), f"the ranks are 1 to {len(proposals)}")
    if not chosen["chain"] or not told.get("trace"):
        why = "is done by hand" if told.get("trace") else "is for a recording that was kept nowhere"
        raise ResultError(f"proposal {number}, '{chosen['change']}', {why}", str(folder))
    plan = _planned(chosen, load_trace(find("trace", str(told["trace"]))))
    said = [
        f"Proposal {number} of gpusim advise, {versions()['gpusim']}: {chosen['change']}",
        f"    program    {told['program']}",
        f"    machine    {told['machine']}",
        f"Written by: gpusim export {folder.name} --as torch --run {number}",
    ]
    return f"{told['program']}-{number}", written(plan, said)


def _planned(proposal: Mapping[str, Any], trace: Trace) -> TorchPlan:
    steps = [step.strip() for step in str(proposal["chain"]).split("|")]
    swaps = steps[-1] == "swapping"
    spec = {"transform": " | ".join(steps[:-1] if swaps else steps) or "none", "place": f"pytorch(conf={proposal['conf']})",
            "evict": "lru"}  # fmt: skip
    return torch_plan(spec, {"swap_outs": 1} if swaps else {}, trace)
