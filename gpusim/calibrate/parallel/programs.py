"""From a published step to the programs of its ranks: a model of the zoo in the case's shapes, laid out as its system does."""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.calibrate.parallel.cases import ParallelCase, shipped
from gpusim.programs import transforms
from gpusim.programs.record.script import record_program
from gpusim.programs.zoo.catalogue import FAMILIES, Asked
from gpusim.programs.zoo.models import ModelEntry
from gpusim.trace.edit import Edit
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import Trace

# Programs are recorded in fp32 and put into 16 bits with fp32 copies for the optimizer: there efficient attention is flash's.
# Of each family how attention is computed and which optimizer the cases use.  BERT has masks, for which its authors wrote the
# scores out; its optimizer is one kernel (apex), PyTorch's and PaddlePaddle's are made of a few.
_FAMILY: dict[str, dict[str, Any]] = {
    "gpt2": {"attention": "efficient", "optimizer": "adamw"},
    "llama": {"attention": "efficient", "optimizer": "adamw"},
    "bert": {"attention": "eager", "optimizer": "adam", "update": "fused", "padding": True},
    "resnet": {"image": 224, "optimizer": "momentum"},
}  # fmt: skip


STEPS = 3
"""That are recorded: the first makes the optimizer's state, and begins with no gather of the step before."""


def stages(case: ParallelCase, microbatches: int) -> list[Trace]:
    """The program of the ranks of each pipeline stage, with so many microbatches in each of its STEPS steps."""
    layout, plain = case.degrees, recorded(case)
    return [transforms.apply(plain, chain(case, microbatches, stage)) for stage in range(layout.pipeline)]


def without_last(trace: Trace) -> Trace:
    """The program up to its last step."""
    edit = Edit(trace)
    edit.drop_events(iterations(trace) == STEPS - 1)
    return edit.finish()


def chain(case: ParallelCase, microbatches: int, stage: int) -> str:
    """The transforms that divide the plain program over the ranks."""
    d = case.degrees
    words = [] if case.precision.startswith("autocast") else [f"precision(to={case.precision}, master=yes)"]
    if d.pipeline == 1 and microbatches > 1:
        words.append(f"accumulate(steps={microbatches})")
    if d.tensor > 1:
        words.append(f"tensor_parallel(ranks={d.tensor}{', sequence=yes' if d.sequence else ''})")
    if d.pipeline > 1:
        words.append(f"pipeline(stages={d.pipeline}, stage={stage + 1}, microbatches={microbatches})")
    if d.data > 1:
        sharded = f"zero(stage={d.zero}, " if d.zero else "data_parallel("
        words.append(f"{sharded}ranks={d.data}, reduced={case.reduced})")
    return " | ".join(words) or "none"


@lru_cache(maxsize=16)
def _recorded(family: str, config: tuple[tuple[str, Any], ...], options: tuple[tuple[str, Any], ...], every: int) -> Trace:
    try:
        from torch.utils.checkpoint import checkpoint

        from gpusim.programs.zoo.model_program import make
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise GpusimError("training steps are recorded from the zoo", hint="pip install 'gpusim[torch]'") from None
    asked = Asked(ModelEntry("step", family, 0, family, dict(config)), dict(options))

    def run() -> None:
        program = make(asked)
        for block in list(program.model.blocks)[::every] if every else ():
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
        program.run()

    with TemporaryDirectory() as folder:
        return record_program(run, Path(folder) / "step.npz", family, name=family)


def recorded(case: ParallelCase) -> Trace:
    """The plain program on one GPU.  Needs PyTorch, as the zoo does."""
    model = shipped().models[case.model]
    config = {**model.config, **({"positions": case.seq} if model.family == "gpt2" else {})}
    wanted = {
        **FAMILIES[model.family].options("train"), **_FAMILY[model.family], "batch": case.batch, "steps": STEPS,
        "dtype": case.precision if case.precision.startswith("autocast") else "fp32",
    }  # fmt: skip
    if "seq" in wanted:
        wanted["seq"] = case.seq
    every = {"none": 0, "all": 1, "every second": 2}[case.recompute]
    frozen = tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in config.items())
    return _recorded(model.family, frozen, tuple(wanted.items()), every)
