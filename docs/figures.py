"""Makes the figures of the docs anew, all or those that are named, and says which no longer show what the code does.

    PYTHONPATH=. python docs/figures.py [NAME ...]        makes them, which takes some minutes for all
    PYTHONPATH=. python docs/figures.py --check [NAME ...]  names the stale ones; exit code 1 when there are any

docs/figures/manifest.json keeps for each figure what it shows, as a hash of its words and numbers (no pixels: these differ
from one matplotlib to the next), and the hash of its file.  Tests compare both.
"""

from __future__ import annotations

import hashlib
import json
import re
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures"
MANIFEST = FOLDER / "manifest.json"
POINTS = 40  # of a curve, evenly spread: enough to see that it has moved


@dataclass(frozen=True)
class OfExperiment:
    """A figure of a shipped experiment; `run` chooses one of its runs, counted from 1."""

    experiment: str
    figure: str
    run: int = 0

    def draw(self, results: Sequence[Any]) -> Any:
        """The matplotlib figure of the experiment's results."""
        from gpusim.experiment import load
        from gpusim.show import figures

        shown = [results[self.run - 1]] if self.run else list(results)
        question = "" if self.run else load.experiment(self.experiment).experiment.question
        return figures.draw(self.figure, shown, question)


EXPERIMENTS = {
    "policies": OfExperiment("policies", "policy_comparison"),
    "distribution": OfExperiment("policies", "distribution"),
    "heat_map": OfExperiment("eviction", "heat_map"),
    "pareto": OfExperiment("what_if", "pareto"),
    "traffic": OfExperiment("prefetch", "traffic"),
    "roofline": OfExperiment("gpus", "roofline", run=2),
    "unified_oversubscription": OfExperiment("unified_oversubscription", "oversubscription"),
    "unified_training": OfExperiment("unified_training", "time_breakdown"),
    "neighbours": OfExperiment("neighbours", "policy_comparison"),
    "sharing": OfExperiment("sharing", "policy_comparison"),
    "over_commit": OfExperiment("over_commit", "policy_comparison"),
    "faults_pingpong": OfExperiment("unified_pingpong", "fault_map", run=1),
    "faults_training": OfExperiment("unified_training", "fault_map", run=2),
}


def fit() -> Any:
    """`gpusim fit llama-1b-train`."""
    from gpusim.base.yaml.find import find, names
    from gpusim.machine.catalogue import load
    from gpusim.show import fit as shown
    from gpusim.studies.capacity import remedies, report, study
    from gpusim.trace.files import load_trace

    trace = load_trace(find("trace", "llama-1b-train"))
    machines = [load(name) for name in names("profile")]
    return shown.draw(report.values(study.study(trace, machines, remedies.default(trace))))


def heap() -> Any:
    """`gpusim fragment gpt-medium-train-snapshot`."""
    from gpusim.base.yaml.find import find
    from gpusim.show.allocator_study import FIGURES
    from gpusim.studies.fragmentation import candidates, study
    from gpusim.trace.files import load_trace

    trace = load_trace(find("trace", "gpt-medium-train-snapshot"))
    return FIGURES["heap"](study.for_figures(study.study(trace, candidates.default(trace), None)))


def held_over_time() -> Any:
    """`gpusim oom gpt2-small-train`."""
    from gpusim.base.yaml.find import find
    from gpusim.show.allocator_study import FIGURES
    from gpusim.studies.fragmentation import candidates, study
    from gpusim.trace.files import load_trace

    trace = load_trace(find("trace", "gpt2-small-train"))
    return FIGURES["held_over_time"](study.for_figures(study.study(trace, candidates.default(trace), None)))


@cache
def logged() -> Any:
    """A run of the experiment `prefetch`, with its event log."""
    import gpusim

    chosen = {"memory": "60 %", "place": "pytorch", "evict": "lru", "prefetch": "next_k"}
    return gpusim.simulate("bert-large-train", "a100-pcie-80gb", log=True, **chosen)


def swimlane() -> Any:
    """`gpusim run prefetch --log`, of one of its runs."""
    return logged().plot("swimlane")


def durations() -> Any:
    """`gpusim run prefetch --log`, of one of its runs."""
    return logged().plot("durations")


def models() -> Any:
    """`gpusim models host_memory_for_models`."""
    from gpusim.api.models import models_question
    from gpusim.show.models import LATE, draw

    asked, points = models_question("host_memory_for_models")
    return draw(asked, [row for row in (point.row() for point in points) if LATE in row])


def experts() -> Any:
    """`gpusim experts expert_cache`."""
    from gpusim.api.experts import expert_question
    from gpusim.show.experts import TOKEN, draw

    asked, points = expert_question("expert_cache")
    return draw(asked, [row for row in (point.row() for point in points) if TOKEN in row])


def checkpoints() -> Any:
    """`gpusim failures checkpoints`."""
    from gpusim.api.failures import training_question
    from gpusim.show.failures import EFFECTIVE, draw

    asked, points = training_question("checkpoints")
    return draw(asked, [row for row in (point.row() for point in points) if EFFECTIVE in row])


def serve() -> Any:
    """`gpusim serve` with objectives, on one card."""
    from gpusim.api.serving import serve
    from gpusim.show.serving import draw

    return draw(serve("llama-8b", "l40s", "drawn(prompt=1024, output=256, requests=400)", slo="ttft 2 s, tpot 60 ms"))


def burst_shared() -> Any:
    """`gpusim run burst_shared`."""
    from gpusim.api.serving import serve_question
    from gpusim.show.serving_question import draw

    return draw(*serve_question("burst_shared"))


def kv_policies() -> Any:
    """Caches of keys and values under Mooncake's conversations."""
    from gpusim.programs.serving.requests import requests_of
    from gpusim.show.kv_tiers import draw, found_by_size

    question = "Which chunks should leave a cache of keys and values first?"
    return draw(found_by_size(requests_of("mooncake_conversation_trace.jsonl.gz")), question)


def kv_mooncake() -> Any:
    """`gpusim serve kv_mooncake`."""
    from gpusim.api.serving import serve_question
    from gpusim.show.kv_tiers import draw_question

    asked, rows = serve_question("kv_mooncake")
    return draw_question(asked.question, "tiers", rows)


VERBS: dict[str, Callable[[], Any]] = {
    "fit": fit, "experts": experts, "models": models, "serve": serve, "burst_shared": burst_shared, "heap": heap,
    "held_over_time": held_over_time, "swimlane": swimlane, "durations": durations, "checkpoints": checkpoints,
    "kv_policies": kv_policies, "kv_mooncake": kv_mooncake,
}  # fmt: skip
RECORDED = {"kv_policies": "mooncake_conversation_trace.jsonl.gz", "kv_mooncake": "mooncake_conversation_trace.jsonl.gz"}
"""Figures of requests that do not ship, and their file."""
# Figures that a script of their own writes together with the tables of a document: they are as new as these tables are.
SCRIPTS = {
    "calibration": (ROOT / "gpusim" / "show" / "calibration_tables.py", ROOT / "docs" / "calibration.md"),
    "unified_memory": (ROOT / "benchmarks" / "uvm_validation.py", ROOT / "docs" / "unified_memory_measurements.md"),
    "gpu_ext": (ROOT / "benchmarks" / "gpu_ext.py", ROOT / "docs" / "gpu_ext.md"),
    "kernel_times": (ROOT / "gpusim" / "show" / "kernel_time_tables.py", ROOT / "docs" / "kernel_times_steps.md"),
}
NOTED = {"kernel_times"}  # its script reads measurements that are not shipped: run it first, here the figure is only noted
NAMES = (*EXPERIMENTS, *VERBS, *SCRIPTS)


@cache
def results_of(experiment: str) -> tuple[Any, ...]:
    """The results of a shipped experiment, simulated now."""
    from gpusim.experiment import grid, load
    from gpusim.experiment.tasks import plan
    from gpusim.results.folder import load_folder

    with tempfile.TemporaryDirectory() as folder:
        grid.run(plan(load.experiment(experiment), Path(folder)), "", {})
        return tuple(load_folder(Path(folder)))


def drawn(name: str) -> Any:
    """The matplotlib figure of this name, from what the code comes to now."""
    of = EXPERIMENTS.get(name)
    return of.draw(results_of(of.experiment)) if of else VERBS[name]()


def shows(figure: Any) -> str:
    """A hash of the words and numbers of a figure, these to three digits."""
    said = [text.get_text() for text in figure.texts]
    for panel in figure.axes:
        said += [panel.get_title(loc="left"), panel.get_title(), panel.get_xlabel(), panel.get_ylabel()]
        said += [text.get_text() for text in panel.texts]
        legend = panel.get_legend()
        said += [text.get_text() for text in legend.get_texts()] if legend else []
        said += [word for artist in panel.get_children() if artist.get_gid() for word in _numbers(artist)]
    return hashlib.sha256("\n".join(said).encode()).hexdigest()


def _numbers(artist: Any) -> Iterator[str]:
    """What a line or a bar that has a name stands for."""
    yield str(artist.get_gid())
    if hasattr(artist, "get_xdata"):
        points = list(zip(artist.get_xdata(), artist.get_ydata(), strict=True))
        for x, y in points[:: max(1, len(points) // POINTS)]:
            yield f"{float(x):.3g} {float(y):.3g}"
    elif hasattr(artist, "get_width"):
        yield f"{artist.get_x():.3g} {artist.get_y():.3g} {artist.get_width():.3g} {artist.get_height():.3g}"


def of_file(path: Path) -> str:
    """sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest() -> dict[str, dict[str, str]]:
    """What was kept when the figures were made: name -> {shows, file}."""
    found: dict[str, dict[str, str]] = json.loads(MANIFEST.read_text(encoding="utf-8"))
    return found


def state(name: str) -> str:
    """What a figure would show now: a hash, of a script's figure that of the tables that it writes into a document."""
    if name not in SCRIPTS:
        return shows(drawn(name))
    text = SCRIPTS[name][1].read_text(encoding="utf-8")
    tables = re.findall("<!-- begin.*?<!-- end", text, re.DOTALL) or [text]
    return hashlib.sha256("".join(tables).encode()).hexdigest()


def make(name: str) -> None:
    """Draw the figure into docs/figures, and note what it shows."""
    from gpusim.show.figures import save

    if name in SCRIPTS:
        if name not in NOTED:
            sys.path.insert(0, str(SCRIPTS[name][0].parent))
            runpy.run_path(str(SCRIPTS[name][0]), run_name="__main__")
        shown = state(name)
    else:
        figure = drawn(name)
        shown = shows(figure)
        save(figure, FOLDER / name, ("png",))
    kept = manifest() if MANIFEST.is_file() else {}
    kept[name] = {"shows": shown, "file": of_file(FOLDER / f"{name}.png")}
    MANIFEST.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def main(words: list[str]) -> int:
    check = "--check" in words
    names = [word for word in words if word != "--check"] or list(NAMES)
    if unknown := [name for name in names if name not in NAMES]:
        print(f"there is no figure {unknown[0]!r} in the docs; known: {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if not check:
        for name in names:
            make(name)
            print(FOLDER / f"{name}.png")
        return 0
    kept = manifest()
    stale = [name for name in names if kept.get(name, {}).get("shows") != state(name)]
    for name in stale:
        print(f"docs/figures/{name}.png is stale: python docs/figures.py {name}")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
