"""From a published training step to its program: a model of the zoo in the case's shapes, and the transforms of its system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from gpusim.base.errors import GpusimError
from gpusim.calibrate.offload.cases import OffloadCase
from gpusim.programs import transforms
from gpusim.programs.record.script import record_program
from gpusim.programs.zoo.catalogue import FAMILIES, Asked
from gpusim.programs.zoo.models import ModelEntry
from gpusim.trace.trace import Trace

# What a system does to the plain program.  ZeRO-Offload and FSDP keep 32-bit masters and moments on the host, torchao moments
# of the parameters' type (torchao/optim/cpu_offload.py).  torchtune moves the inputs of checkpointed blocks on a stream of
# their own.  Of PyTorch's 155 tensors it is not said which: five of each layer but the last, since there are 32
# (torchtitan/experiments/graph_trainer/cpu_offload.py), and of 16.5 GB in all, since 5, 8 and 10 GB on the host save 9.9, 16.6
# and 20.4 % and all of them 33.4 % (github.com/pytorch/torchtitan/pull/3522).  So many bytes have what attention reads and what
# enters the gate.  They come back one layer ahead.
_CHAINS: Mapping[str, str] = {
    "PyTorch": "none",
    "torchao": "offload(what=optimizer)",
    "torchtune": "save_on_host(ahead=1)",
    "PyTorch ao::offload": "save_on_host(most=155, memory={memory}, ahead=5, modules=attention+v+gate+up)",
    "ZeRO-Offload": "precision(to={short}, master=yes) | offload(what=optimizer)",
    "FSDP (fairscale)": "precision(to={short}, master=yes) | offload(what=all)",
}
_SHARED = "zero(stage=3, ranks={gpus})"  # of several GPUs that share all of their states


def simulated(case: OffloadCase, seconds: Callable[[Trace, str], float], machine: str) -> float:
    """What the case measured, of its third step: only then is the optimizer's state told from what a step makes and drops.

    Raises GpusimError for a system or a model that is not expressible.
    """
    chain = _chain(case)
    recorded = [_recorded(case, steps) for steps in (2, 3)]

    def step(chain: str) -> float:
        two, three = (seconds(transforms.apply(trace, chain), machine) for trace in recorded)
        return three - two

    took = step(chain)
    if case.unit == "% loss":
        return 100 * (1 - step(_SHARED.format(gpus=case.gpus)) / took)
    assert case.seq is not None
    return took if case.unit == "s/step" else case.batch * case.seq / took


def _chain(case: OffloadCase) -> str:
    if case.system not in _CHAINS:
        raise GpusimError(f"what {case.system} moves in training is not written down", hint=", ".join(_CHAINS))
    chain = f"{_CHAINS[case.system]} | {_SHARED}" if case.gpus > 1 else _CHAINS[case.system]
    return chain.format(memory="pool" if case.pinned == "pool" else "fresh", short=_short(case), gpus=case.gpus)


def _short(case: OffloadCase) -> str:
    return case.precision.partition(",")[0]


def _recorded(case: OffloadCase, steps: int) -> Trace:
    """Some steps of the plain program.  Needs PyTorch, as the zoo does."""
    try:
        from gpusim.programs.zoo.model_program import make
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise GpusimError("training steps are recorded from the zoo", hint="pip install 'gpusim[torch]'") from None
    family, config = _model(case)
    dtype = "fp32" if "master=yes" in _chain(case) else _short(case)
    options = FAMILIES[family].options("train")
    options |= {"batch": case.batch, "dtype": dtype, "optimizer": "adamw", "checkpointing": case.checkpointing, "steps": steps}
    if "seq" in options:
        assert case.seq is not None
        options["seq"] = case.seq
    asked = Asked(ModelEntry(case.name, family, 0, case.model, config), options)
    with TemporaryDirectory() as folder:
        return record_program(lambda: make(asked).run(), Path(folder) / "step.npz", case.name, name=case.name)


def _model(case: OffloadCase) -> tuple[str, dict[str, int]]:
    """The zoo's family and the arguments of its model."""
    config = {"layers": case.layers, "width": case.hidden, "heads": case.heads}
    if case.model.startswith("ViT-giant"):
        # Its gated feed-forward part has three matrices of 1536 x 4096, the zoo's two of 1536 x 6144: the same arithmetic.
        return "vit", config | {"patch": 14}
    assert case.vocabulary is not None and case.seq is not None
    config["vocabulary"] = case.vocabulary
    if case.model.startswith("GPT"):
        return "gpt2", config | {"positions": case.seq}
    if case.model.startswith("Llama") and case.kv_heads is not None:
        return "llama", config | {"hidden": case.ffn, "groups": case.kv_heads, "tied": case.model.startswith("Llama-3.2")}
    raise GpusimError(f"no family of the zoo has the model '{case.model}'")
