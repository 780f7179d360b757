"""What an hour of a service costs: a price of each GPU hour, for all alike or by the kind of GPU."""

from __future__ import annotations

from collections import Counter

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.machine import catalogue
from gpusim.studies.serving.setup import PreparedService

HINT = "write 2.5, or h100=2.5, a100=1.2"


def prices_of(text: str | float) -> dict[str, float]:
    """Prices of a GPU hour by the beginning of a GPU's name; "" stands for every one.  {} for 0.  Raises GpusimError."""
    if isinstance(text, (int, float)):
        text = repr(float(text))
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, price = (word.strip() for word in part.rpartition("="))
        try:
            found[name] = float(price)
        except ValueError:
            raise GpusimError(f"'{part}' is no price of a GPU hour", hint=HINT) from None
        if not 0 <= found[name] < float("inf"):
            raise GpusimError(f"'{part}' is no price of a GPU hour", hint="a price is 0 or more")
    if "" in found and len(found) > 1:
        raise GpusimError("a price is for all GPUs or for those of one name", hint=HINT)
    return {} if found == {"": 0.0} else found


def hourly(service: PreparedService, price: str | float) -> float:
    """The price of an hour of all GPUs of a service; 0.0 without one.

    Raises GpusimError for a name that begins no GPU's, and where a GPU of the service has no price or several.
    """
    prices, total = prices_of(price), 0.0
    counts = Counter(service.topology.profile(gpu).name for group in service.groups for gpu in group)
    for name in prices:  # of GPUs that the service does not have, too: one word for services that are compared
        if not any(gpu.startswith(name) for gpu in (*counts, *catalogue.names())):
            raise GpusimError(f"no GPU's name begins with '{name}'", hint=suggest(name, counts) or join(tuple(counts)))
    for gpu, count in counts.items():
        own = [name for name in prices if gpu.startswith(name)]
        if prices and len(own) != 1:
            raise GpusimError(f"'{gpu}' has {'two prices' if own else 'no price'}", hint=HINT)
        total += count * prices[own[0]] if own else 0.0
    return total
