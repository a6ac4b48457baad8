"""Kubernetes quantities (``k8s.io/apimachinery/pkg/api/resource``): ``800m``, ``33000Mi``, ``1e3``.

``kubernetes.utils.quantity`` reads them too, but brings the API client into every process (tests compare).
"""

import re
from functools import lru_cache

import msgspec

from controller.cluster.wire import Nullable, NullableStruct

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<decimal>[numkMGTPE])|(?P<binary>[KMGTPE])i|[eE](?P<exponent>[+-]?[0-9]{1,2}))?"
)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_FACTORS = {prefix: 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)}


@lru_cache(maxsize=8192)
def parse_quantity(quantity: str | float) -> float:
    """The value of a quantity in its base unit (cores, bytes, pieces); numbers are taken as they are.

    Raises:
        ValueError: it is no quantity.
    """
    if not isinstance(quantity, str):
        return float(quantity)
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(
            f"quantity {quantity!r}: expected a number, alone or with an exponent or one of the suffixes "
            "n u m k M G T P E Ki Mi Gi Ti Pi Ei, such as 800m, 1.5Gi or 1e3"
        )
    number = match["number"]
    if binary := match["binary"]:
        return float(number) * _BINARY_FACTORS[binary]
    # Read as one decimal number rather than multiplied: exactly the nearest float.
    exponent = _DECIMAL_EXPONENTS[match["decimal"]] if match["decimal"] else match["exponent"] or 0
    return float(f"{number}e{exponent}")


class Resources(msgspec.Struct, frozen=True, gc=False):
    """An amount of CPU and memory."""

    cpu_cores: float = 0.0
    memory_bytes: float = 0.0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(self.cpu_cores + other.cpu_cores, self.memory_bytes + other.memory_bytes)

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(self.cpu_cores - other.cpu_cores, self.memory_bytes - other.memory_bytes)

    def at_least(self, other: "Resources") -> "Resources":
        """The greater of both, in each dimension."""
        return Resources(max(self.cpu_cores, other.cpu_cores), max(self.memory_bytes, other.memory_bytes))


NOTHING = Resources()


class ResourceList(NullableStruct, frozen=True):
    """``v1.ResourceList`` as sent, as far as we read it."""

    cpu: Nullable[str | float] = 0.0
    memory: Nullable[str | float] = 0.0
    pods: Nullable[str | float] = 0.0

    def resources(self) -> Resources:
        """CPU and memory.

        Raises:
            ValueError: a quantity is malformed; the message says which.
        """
        return Resources(_amount("cpu", self.cpu), _amount("memory", self.memory))

    def pod_count(self) -> int:
        """How many pods; raises as :meth:`resources` does."""
        return int(_amount("pods", self.pods))


def _amount(name: str, quantity: str | float) -> float:
    try:
        return parse_quantity(quantity)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
