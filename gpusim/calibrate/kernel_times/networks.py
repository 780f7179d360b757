"""Records the programs of published whole steps from the packages that hold the networks: timm, transformers.

A timm step is what the package's own benchmark.py measures (huggingface/pytorch-image-models @ aa4b5850, lines 256-440):
inference is the model under `inference_mode` and autocast to float16 on an input that is there already; training is forward,
cross entropy against targets drawn in the step, backward, and SGD with momentum over gradients that stay from step to step.
Versions of PyTorch before 2 had no fused attention, so that their rows are recorded without it.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpusim.calibrate.kernel_times.held_out import family
from gpusim.calibrate.kernel_times.steps import rows as read
from gpusim.trace.trace import KERNEL

OperatorLine = tuple[str, str, str, float, int, int]
"""Operator, element type, shape, flops, bytes read, bytes written."""


@dataclass(frozen=True)
class NetworkProgram:
    """One step of one network."""

    network: str
    mode: str
    """infer or train"""
    layout: str
    """nchw or nhwc"""
    fused: bool
    """Attention as one operator"""
    batch: int
    size: int
    """Pixels of a side, or tokens of a sequence"""

    @property
    def name(self) -> str:
        return f"{self.network}/{self.mode}/{self.layout}/{'fused' if self.fused else 'plain'}/{self.batch}/{self.size}"


def program_of(row: dict[str, str]) -> NetworkProgram:
    """The program of a timm row."""
    fused = int(row["torch"]) >= 200
    return NetworkProgram(row["network"], row["mode"], row["layout"], fused, int(float(row["batch"])), int(float(row["img"])))


@contextmanager
def unfilled() -> Iterator[None]:
    """Models are built without filling their large tensors, since no value matters."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    random = {"normal_", "uniform_", "erfinv_"}

    class Skip(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func._overloadpacket.__name__
            first = args[0] if args else None
            large = isinstance(first, torch.Tensor) and first.numel() > 1 << 16
            if name in random or (large and name.endswith("_")):
                return first
            return func(*args, **(kwargs or {}))

    with Skip():
        yield


def lines(step: Callable[[], object], name: str) -> Counter[OperatorLine]:
    """The distinct operators of what `step` runs on the GPU with their counts."""
    from gpusim.programs.record import begin

    with begin(None, name=name, fake=True) as recording:
        step()
    found: Counter[OperatorLine] = Counter()
    for o in recording.tape.issued():
        if o.activity == KERNEL:
            found[o.name, o.dtype or "", o.shape or "", float(o.flops), int(o.read_bytes), int(o.written_bytes)] += 1
    return found


class TimmNetwork:
    """One network of timm, built once."""

    def __init__(self, network: str, mode: str, layout: str, fused: bool) -> None:
        import timm
        import torch
        from timm.layers import set_fused_attn

        set_fused_attn(fused)
        self.network, self.mode, self.layout = network, mode, layout
        self.last = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        self._timm = timm
        self._size: int | None = None
        self.model = self._build(None)

    def _build(self, size: int | None) -> Any:
        more = {"img_size": size} if size else {}
        with unfilled():
            model = self._timm.create_model(self.network, **more)
            model.to(memory_format=self.last)
        return model.train(self.mode == "train")

    def record(self, batch: int, size: int) -> Counter[OperatorLine]:
        """The step at a batch and image size; a network of fixed size is built again for another one."""
        default = self.model.default_cfg
        if default.get("fixed_input_size") and tuple(default["input_size"])[-1] != size and self._size != size:
            self.model, self._size = self._build(size), size
        step = self._training(batch, size) if self.mode == "train" else self._inference(batch, size)
        return lines(step, f"{self.network} {self.mode}")

    def _input(self, batch: int, size: int) -> Any:
        import torch

        return torch.empty(batch, 3, size, size).contiguous(memory_format=self.last)

    def _inference(self, batch: int, size: int) -> Callable[[], object]:
        import torch

        images = self._input(batch, size)

        def step() -> None:
            with torch.inference_mode(), torch.amp.autocast("cuda", dtype=torch.float16):
                self.model(images)

        return step

    def _training(self, batch: int, size: int) -> Callable[[], object]:
        import torch

        images = self._input(batch, size)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9, nesterov=True, foreach=False)
        for p in self.model.parameters():
            p.grad = torch.empty_like(p)
            optimizer.state[p]["momentum_buffer"] = torch.empty_like(p)
        loss = torch.nn.CrossEntropyLoss()

        def step() -> None:
            optimizer.zero_grad(set_to_none=False)
            with torch.amp.autocast("cuda", dtype=torch.float16):
                out = self.model(images)
                out = out[0] if isinstance(out, tuple) else out
                target = torch.empty((batch,), dtype=torch.long, device="cuda").random_(self.model.num_classes)
                loss(out, target).backward()
            optimizer.step()

        return step


def timm_programs(rows: list[dict[str, str]]) -> dict[str, list[NetworkProgram]]:
    """The programs of timm rows by network; one network of each name family first, then a second, and so on."""
    found: dict[str, list[NetworkProgram]] = {}
    for row in rows:
        program = program_of(row)
        of = found.setdefault(program.network, [])
        if program not in of:
            of.append(program)
    turn: Counter[str] = Counter()
    order = {}
    for network in sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest()):
        order[network] = turn[family(network)]
        turn[family(network)] += 1
    return {network: found[network] for network in sorted(found, key=order.__getitem__)}


def record_timm(rows: list[dict[str, str]], folder: Path) -> None:
    """Record what `folder` lacks, a file for each network; several processes may work on one folder."""
    for network, programs in timm_programs(rows).items():
        done, claim = folder / f"{network}.json.gz", folder / f"{network}.claim"
        if done.exists():
            continue
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            continue
        found: dict[str, Any] = {}
        for key in sorted({(p.mode, p.layout, p.fused) for p in programs}, key=lambda key: not key[2]):
            own = [p for p in programs if (p.mode, p.layout, p.fused) == key]
            try:
                left = [p for p in own if not _same(p, found)]
                built = TimmNetwork(network, *key) if left else None
                for program in left:
                    assert built is not None
                    found[program.name] = [[*line, n] for line, n in built.record(program.batch, program.size).items()]
            except Exception as error:  # a network that this version of the package lacks or builds otherwise
                for program in own:
                    found.setdefault(program.name, f"{type(error).__name__}: {str(error)[:300]}")
        done.write_bytes(gzip.compress(json.dumps(found).encode()))
        claim.unlink()


def _same(program: NetworkProgram, found: dict[str, Any]) -> bool:
    """Whether a program without attention was recorded already; it is the same with attention in one operator."""
    known = found.get(replace(program, fused=True).name)
    if program.fused or not isinstance(known, list) or any("attention" in line[0] for line in known):
        return False
    found[program.name] = known
    return True


def record_all(tables: Path, folder: Path) -> None:
    """Record the programs of all published steps."""
    folder.mkdir(parents=True, exist_ok=True)
    neusight = folder / "neusight.json.gz"
    if not neusight.exists():
        record_neusight(read(tables / "neusight_steps.csv.gz"), neusight)
    record_timm(read(tables / "timm_steps.csv.gz"), folder)


_ENCODER = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 30522,
}  # fmt: skip
_DECODER = {"activation_function": "gelu_new", "vocab_size": 50257}
_SWITCH = {
    "d_ff": 16384, "d_kv": 128, "d_model": 1024, "decoder_sparse_step": 2, "encoder_sparse_step": 2, "dense_act_fn": "relu",
    "expert_capacity": 64, "num_layers": 24, "num_decoder_layers": 24, "num_experts": 4, "num_heads": 32,
    "num_sparse_encoder_layers": 12, "num_sparse_decoder_layers": 12, "vocab_size": 32128,
}  # fmt: skip
NEUSIGHT: dict[str, tuple[str, dict[str, Any]]] = {
    "bert_large": ("Bert", _ENCODER),
    "gpt2_large": ("GPT2", {**_DECODER, "n_embd": 1280, "n_head": 20, "n_layer": 36, "n_positions": 1024}),
    "gpt3_xl": ("GPT2", {**_DECODER, "n_embd": 3072, "n_head": 24, "n_layer": 24, "n_positions": 2048}),
    "switchxl4": ("SwitchTransformers", _SWITCH),
}
"""Networks of trsharm25/NeuSight @ db1fdc96, scripts/asplos/data/DLmodel_configs, with eager attention in float32."""


def record_neusight(rows: list[dict[str, str]], path: Path) -> None:
    """Record the programs of NeuSight's rows into one file (neusight/Tracing/trace.py, `measure_e2e`, says what a step is)."""
    found: dict[str, Any] = {}
    for row in rows:
        if not row["batch"].isdigit() or row["network"] not in NEUSIGHT:
            continue
        mode = "infer" if row["mode"] == "inf" else "train"
        name = f"{row['network']}/{mode}/{row['seq']}/{row['batch']}"
        if name not in found:
            step = _transformer(row["network"], mode, int(row["batch"]), int(row["seq"]))
            found[name] = [[*line, n] for line, n in lines(step, name).items()]
    path.write_bytes(gzip.compress(json.dumps(found).encode()))


def _transformer(network: str, mode: str, batch: int, length: int) -> Callable[[], object]:
    import torch
    import transformers

    kind, options = NEUSIGHT[network]
    head = {"Bert": "ForPreTraining" if mode == "train" else "ForSequenceClassification", "GPT2": "LMHeadModel"}
    config = getattr(transformers, f"{kind}Config")(**options, attn_implementation="eager")
    with unfilled():
        model = getattr(transformers, f"{kind}{head.get(kind, 'ForConditionalGeneration')}")(config)
    model.train(mode == "train")
    if kind == "SwitchTransformers":
        _fixed_experts(model, options["expert_capacity"])
    tokens = torch.ones(batch, length, dtype=torch.int64)
    given: dict[str, Any] = {"input_ids": tokens} if kind == "Bert" else {"input_ids": tokens, "use_cache": False}
    if kind == "SwitchTransformers":
        given |= {"attention_mask": tokens, "decoder_input_ids": tokens}

    def step() -> None:
        if mode == "infer":
            with torch.no_grad():
                model(**given)
            return
        out = model(**given)
        logits = out["prediction_logits"] if "prediction_logits" in out else out["logits"]
        target = torch.ones(batch * length, dtype=torch.int64, device="cuda")
        torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), target).backward()

    return step


def _fixed_experts(model: Any, capacity: int) -> None:
    """NeuSight's sparse layer: each expert gets as many tokens as its capacity allows, whatever the router says."""
    import torch

    def forward(self: Any, hidden: Any) -> Any:
        _, probabilities, _ = self.router(hidden)
        batch = hidden.shape[0]
        chosen = torch.arange(batch * capacity, device="cuda")
        out, flat = hidden.clone(), hidden.reshape(-1, hidden.shape[-1])
        for expert in self.experts.values():
            made = expert(flat[chosen])
            out.view(-1, hidden.shape[-1])[chosen] = made
        return probabilities * out

    for module in model.modules():
        if type(module).__name__ == "SwitchTransformersSparseMLP":
            type(module).forward = forward
            return
