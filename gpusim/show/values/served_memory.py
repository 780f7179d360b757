"""Memory of all GPUs of a service over time, by what it holds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpusim.results.activities import Counter
from gpusim.results.served import NEVER
from gpusim.studies.serving.answer import ServingAnswer

KV = "keys and values"
WEIGHTS = "weights"


def memory_by_owner(found: ServingAnswer, until: int = NEVER) -> dict[str, Counter]:
    """By owner (ns, bytes of all GPUs from then on): contexts, weights, keys and values in use; of a service beside, too."""
    context, owners = 0, dict[str, Counter]()
    start = np.zeros(1, np.int64)
    for one in _services(found):
        service = one.service
        gpus = [gpu for group in service.groups for gpu in group]
        context += sum(round(service.topology.profile(gpu).context.value) for gpu in gpus)
        below, tensor = service.offload, service.spec.tensor
        weights = below.device_bytes(service.spec.max_tokens) if below else service.model.weight_bytes(tensor)
        share = below.device_share if below else 1.0
        token = service.model.token_bytes(tensor) * tensor * share
        used = np.rint(one.served.samples["blocks"].sum(axis=0) * (token * service.spec.block)).astype(np.int64)
        times = np.rint(np.arange(len(used)) * float(one.served.samples["width_ns"])).astype(np.int64)
        of = "" if one is found else f" of {service.spec.model}"
        owners[f"{WEIGHTS}{of}"] = (start, np.array([int(weights) * len(gpus)]))
        owners[f"{KV}{of}"] = (times[times < until], used[times < until])
    return {"context": (start, np.array([context])), **owners}


def engines_share(found: ServingAnswer) -> int:
    """Bytes of all GPUs that the engines take of their memory."""
    return int(sum(
        one.service.spec.memory * one.service.topology.profile(gpu).memory.capacity.value
        for one in _services(found) for group in one.service.groups for gpu in group
    ))  # fmt: skip


def capacity_of(found: ServingAnswer) -> float:
    """Bytes of memory of all GPUs."""
    service = found.service
    return float(sum(service.topology.profile(gpu).memory.capacity.value for group in service.groups for gpu in group))


def _services(found: ServingAnswer) -> Iterator[ServingAnswer]:
    yield found
    if found.beside is not None:
        yield found.beside
