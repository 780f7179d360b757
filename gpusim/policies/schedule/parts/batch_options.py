"""What a dynamic batcher can be told, as numbers.

Source: ModelDynamicBatching of the Triton Inference Server's model configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusim.base.errors import PolicyError

P_DELAY, P_TOGETHER, P_PREFERRED = range(3)  # what `state` reads; from P_PREFERRED on the preferred sizes, ascending


def numbers(values: Mapping[str, Any]) -> list[float]:
    """The delay in us, whether answers are returned together, and the preferred sizes; PolicyError for what is none."""
    if values["together"] not in (0, 1):
        raise PolicyError(f"parameter 'together' of policy 'dynamic_batching' is {values['together']}", hint="0 or 1")
    words = str(values["preferred_batch_size"]).replace(",", " ").split()
    if not all(word.isdigit() and int(word) > 0 for word in words):
        said = f"parameter 'preferred_batch_size' of policy 'dynamic_batching' is '{values['preferred_batch_size']}'"
        raise PolicyError(said, hint="sizes of batches, as 4,8")
    return [float(values["max_queue_delay_us"]), float(values["together"]), *sorted({float(word) for word in words})]
