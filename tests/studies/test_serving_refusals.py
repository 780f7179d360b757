"""What a service cannot be told is refused in one sentence, as the real engine refuses it where it does."""

from __future__ import annotations

from typing import Any

import pytest

from gpusim.base.errors import GpusimError
from gpusim.studies.serving.answer import ServingAnswer
from gpusim.studies.serving.setup import ServiceSpec, prepare

WORDS: dict[str, Any] = {"model": "llama-8b", "machine": "h100-sxm-80gb"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"max_tokens": 128}, "vLLM does not start with steps of 128 tokens and 256 requests at once .*--max-seqs 128"),
        ({"machine": "v100-sxm3-32gb", "weights": "fp8"}, "'vllm@0.33' has no products of weights in fp8 on v100-.* 7.0 "),
        ({"machine": "t4", "weights": "fp8", "engine": "sglang@0.5"}, "'sglang@0.5' has no products of weights in fp8 on t4"),
        ({"tenancy": "mps"}, "'mps' says how two services share GPUs, and there is one"),
        ({"tensor": 2}, "has 1 GPU, too few for 1 replica of 2 GPUs .write '2 x h100-sxm-80gb'"),
        ({"machine": "2 x h100-sxm-80gb", "prefill": 2}, "2 of 2 replicas compute prompts.*--prefill 1"),
        ({"machine": "2 x h100-sxm-80gb", "prefill": 1, "engine": "sglang@0.5"}, "not modelled with 'sglang@0.5' .they are"),
        ({"tiers": "nvme(30 TB)"}, "which has 2 TB .take less, or say what yours has"),
        ({"memory": 0.1}, "give the engine more of the memory .memory=0.9"),
    ],
)  # fmt: skip
def test_a_service_that_cannot_be_is_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        prepare(ServiceSpec(**{**WORDS, **words}))


@pytest.mark.parametrize(
    ("machine", "said"), [("t4", "t4 has no products in fp8: those with weights in fp8 are computed in fp16."), ("l4", "")]
)
def test_weights_in_a_type_that_a_gpu_cannot_multiply_are_told_of(machine: str, said: str) -> None:
    service: Any = prepare(ServiceSpec(model="llama-1b", machine=machine, weights="fp8"))
    nothing: Any = None
    assert ServingAnswer(service, nothing, nothing, {}, (1.0, 1.0), ()).emulated() == said
