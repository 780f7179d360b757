"""Autocast as on CUDA: which operators run in which type.

The fake GPU's tensors are tensors of the CPU, so `autocast("cuda")` is taken to the CPU's autocast and its operators are given
CUDA's rules for the time of the recording (aten/src/ATen/autocast_mode.h, PyTorch 2.13).  A weight that is cast is kept until
the outermost region ends, as CUDA keeps it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpusim.programs.record.storages import GPU


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LOWER = _names(
    """
    _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
    chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    _scaled_dot_product_flash_attention scaled_dot_product_attention
    """
)

FLOAT32 = _names(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar norm.Scalar norm.ScalarOpt_dim softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss
    soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm
    logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa linalg_matrix_sqrth
    """
)

INTO_FLOAT32 = _names(
    """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
    """
)  # the result is float32, unless a type is asked for

WIDEST = _names(
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    """
)

_BELOW = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)


class Autocast:
    """The rules of one recording, and the weights that it has cast."""

    def __init__(self, homes: Any) -> None:
        self._homes = homes
        self._weights: dict[int, tuple[Any, Any]] = {}

    @contextmanager
    def rules(self) -> Iterator[None]:
        """CUDA's rules hold in here."""
        library = torch.library.Library("aten", "IMPL")
        rules = (
            (LOWER, self._lower), (FLOAT32, self._float32), (INTO_FLOAT32, self._into_float32), (WIDEST, self._widest)
        )  # fmt: skip
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that kernels are overridden, which is what it is for
                for names, rule in rules:
                    for name in names:
                        self._set(library, name, rule)
                for name in _only_on_cpu():
                    library.impl(name, torch.library.fallthrough_kernel, "AutocastCPU")
            yield
        finally:
            library._destroy()
            self.forget()

    def forget(self) -> None:
        """The outermost region ends."""
        self._weights.clear()

    def _set(self, library: Any, name: str, rule: Callable[..., Any]) -> None:
        packet, _, overload = name.partition(".")
        try:
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        except AttributeError:  # another version of PyTorch
            return

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(_BELOW):
                return rule(op, args, kwargs)

        library.impl(name, kernel, "AutocastCPU")

    def _lower(self, op: Any, args: Any, kwargs: Any) -> Any:
        return self._cast(op, args, kwargs, torch.get_autocast_dtype("cpu"))

    def _float32(self, op: Any, args: Any, kwargs: Any) -> Any:
        return self._cast(op, args, kwargs, torch.float32)

    def _into_float32(self, op: Any, args: Any, kwargs: Any) -> Any:
        names = [argument.name for argument in op._schema.arguments]
        asked = kwargs.get("dtype") or (args[names.index("dtype")] if "dtype" in names[: len(args)] else None)
        if asked is None and self._eligible(args[0]):
            args = args[: names.index("dtype")]
            kwargs = {**kwargs, "dtype": torch.float32}
        return op(*args, **kwargs)

    def _widest(self, op: Any, args: Any, kwargs: Any) -> Any:
        wide = any(self._eligible(t) and t.dtype == torch.float32 for t in _flat((args, tuple(kwargs.values()))))
        return self._cast(op, args, kwargs, torch.float32 if wide else torch.get_autocast_dtype("cpu"))

    def _eligible(self, value: Any) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.dtype != torch.float64
            and self._homes.of(value) == GPU
        )

    def _cast(self, op: Any, args: Any, kwargs: Any, dtype: Any) -> Any:
        cast = [self._as(value, dtype) for value in args]
        named = {key: self._as(value, dtype) for key, value in kwargs.items()}
        out = op(*cast, **named)
        while cast:  # what was cast for this operator dies in its order, as in C++
            value = cast.pop(0)
            while isinstance(value, list) and value:
                del value[0]
        return out

    def _as(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(self._as(v, dtype) for v in value)
        if not self._eligible(value) or value.dtype == dtype:
            return value
        lower = dtype == torch.get_autocast_dtype("cpu")
        if not (lower and value.requires_grad and value.is_leaf and not value._is_view() and torch.is_autocast_cache_enabled()):
            return torch.ops.aten._to_copy.default(value, dtype=dtype)
        kept = self._weights.get(id(value))
        if kept is None:
            kept = self._weights[id(value)] = (value, torch.ops.aten._to_copy.default(value, dtype=dtype))
        return kept[1]


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _only_on_cpu() -> list[str]:
    """Operators that the CPU's autocast casts and CUDA's does not."""
    known = {*LOWER, *FLOAT32, *INTO_FLOAT32, *WIDEST}
    found = []
    for qualified in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU"):
        name = qualified.removeprefix("aten::")
        if qualified.startswith("aten::") and name not in known:
            found.append(name)
    return found
