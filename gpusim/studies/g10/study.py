"""The published table of the G10 study: its rows, what each is run with, and what comes out."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import yaml

from gpusim.base.errors import GpusimError
from gpusim.programs.recordings import import_trace
from gpusim.studies.g10 import plans
from gpusim.studies.g10.channels import DoesNotFit
from gpusim.studies.g10.conditions import Conditions
from gpusim.studies.g10.direct import direct, flashneuron
from gpusim.studies.g10.extent_tables import DEVICE, HOST, NOWHERE, SSD
from gpusim.studies.g10.kernel_program import KernelProgram
from gpusim.studies.g10.paged_replay import ReplayPolicy, replay

DEFAULT = Path(__file__).parent / "g10.yaml"
LINKS = ("host_to_gpu", "gpu_to_host", "ssd_to_gpu", "gpu_to_ssd")


@dataclass(frozen=True)
class Case:
    """What one run depends on."""

    network: str
    batch: int
    policy: str
    host_gib: float
    ssd: float   # GB/s
    pcie: float  # GB/s

    @property
    def program(self) -> str:
        return f"{self.network}_b{self.batch}"


@dataclass(frozen=True)
class Published:
    """A bar or point of a figure; cycles is None where the study has none.

    unsupported  the study publishes that the policy does not run the program; without it, None means "not published"
    """

    figure: str
    case: Case
    cycles: int | None
    pages: dict[str, int]  # over each link, where published
    unsupported: bool = False


@dataclass(frozen=True)
class CaseOutcome:
    """What our run of a case came to; cycles is None where the policy does not support the program."""

    cycles: int | None
    iterations: tuple[int, ...] = ()
    pages: tuple[int, ...] = ()  # over LINKS, in the iteration that counts; none where the study counts none
    seconds: float = 0.0


class G10Study:
    """A file of conditions.  GpusimError, with the file's name, for what is wrong with it."""

    def __init__(self, path: Path = DEFAULT) -> None:
        self.path = path
        try:
            self.file: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
            self.conditions = Conditions(**self.file["conditions"])
            self.rows = list(_published(path.parent / self.file["published"]))
            self.policies = dict(self.file["policies"])
        except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise GpusimError(f"no conditions of the G10 study: {error}", str(path)) from None
        for row in self.rows:
            if row.case.policy not in self.policies:
                raise GpusimError(f"policy '{row.case.policy}' of the table is not explained", str(path))

    def figures(self, wanted: Iterable[str]) -> list[Published]:
        """The rows of these figures, all without any."""
        chosen, known = list(wanted), sorted({row.figure for row in self.rows})
        for figure in chosen:
            if figure not in known:
                raise GpusimError(f"the study has no figure '{figure}'", hint=f"there are: {', '.join(known)}")
        return [row for row in self.rows if not chosen or row.figure in chosen]

    def prepared(self, case: Case, program: KernelProgram) -> tuple[KernelProgram, Conditions]:
        """The program and the conditions with what is special about this case."""
        values = {"host_gib": case.host_gib, "ssd": case.ssd, "pcie": case.pcie, **self.policies[case.policy]}
        for rule in self.file.get("exceptions", ()):
            if _applies(rule, case):
                values.update(rule)
        known = {f.name for f in fields(Conditions)}
        conditions = replace(self.conditions, **{key: value for key, value in values.items() if key in known})
        for rule in self.file.get("walks", ()):
            if _applies(rule, case):
                walk = list(program.walk)
                walk[rule["kernel"]] = np.array(rule["tensors"], np.int64)
                program = replace(program, walk=tuple(walk))
        return program, conditions

    def run(self, case: Case, program: KernelProgram, plan: Path | None = None) -> CaseOutcome:
        """Run one case.  plan: the study's own plan, instead of the one that our planner makes."""
        program, conditions = self.prepared(case, program)
        options, begin = self.policies[case.policy], process_time()
        kind = options["run"]
        if kind == "ideal":
            return CaseOutcome(int(program.cycles(conditions.hertz)[0].sum()), seconds=process_time() - begin)
        if kind in ("flashneuron", "g10_direct"):
            try:
                if kind == "flashneuron":
                    run = flashneuron(program, conditions)
                else:
                    run = direct(program, conditions, plans.g10_direct(program, conditions))
            except DoesNotFit:
                return CaseOutcome(None, seconds=process_time() - begin)
            cycles = round(float(f"{run.ms:.6g}") * conditions.hertz / 1000)  # the study prints six digits
            ssd_pages = (0, 0, run.in_bytes // conditions.page, run.out_bytes // conditions.page)
            return CaseOutcome(cycles, (cycles,), ssd_pages if kind == "flashneuron" else (), process_time() - begin)
        hints = []
        if kind == "g10":
            hints = plans.g10(program, conditions) if plan is None else read_plan(plan, program)
        policy = ReplayPolicy(options["degree"], drops=True) if kind == "deepum" else ReplayPolicy()
        done = replay(program, conditions, policy, hints, iterations=self.file["iterations"])
        best = done.iterations[done.best]
        pages = tuple(int(best[name]) for name in ("host_in", "host_out", "ssd_in", "ssd_out"))
        return CaseOutcome(int(done.cycles[done.best]), tuple(map(int, done.cycles)), pages, process_time() - begin)


def load(name: str, folder: Path) -> KernelProgram | None:
    """The program `name` from a folder of the study's traces, None if it is not there."""
    path = folder / f"{name}.jsonl.gz"
    return KernelProgram.of(import_trace(path)) if path.is_file() else None


def read_plan(path: Path, program: KernelProgram) -> list[tuple[int, int, int]]:
    """A plan of the study: columns issue_kernel, tensor, to."""
    places = {"gpu": DEVICE, "ssd": SSD, "host": HOST, "free": NOWHERE}
    hints = []
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), 2):
            try:
                kernel, tensor, to = int(row["issue_kernel"]), int(row["tensor"]), places[row["to"]]
            except (KeyError, TypeError, ValueError):
                raise GpusimError("not a row of a G10 plan", f"{path}:{number}", "issue_kernel,tensor,to") from None
            if not (0 <= kernel <= program.kernels and 0 <= tensor < program.tensors):
                raise GpusimError(f"kernel {kernel} or tensor {tensor} is not in '{program.name}'", f"{path}:{number}")
            hints.append((kernel, tensor, to))
    return hints


def _published(path: Path) -> Iterator[Published]:
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            case = Case(
                row["network"], int(row["batch"]), row["policy"], float(row["host_gib"]), float(row["ssd"]), float(row["pcie"])
            )  # fmt: skip
            pages = {link: int(row[link]) for link in LINKS if row[link]}
            unsupported = row["cycles"] == "unsupported"
            cycles = int(row["cycles"]) if row["cycles"] and not unsupported else None
            yield Published(row["figure"], case, cycles, pages, unsupported)


def _applies(rule: dict[str, Any], case: Case) -> bool:
    """Does a rule of the file hold for this case?"""
    same = all(rule.get(key, getattr(case, key)) == getattr(case, key) for key in ("policy", "network", "batch", "ssd"))
    return same and case.ssd < rule.get("ssd_below", float("inf"))

