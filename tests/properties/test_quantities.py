"""The quantity parser against the Kubernetes client's own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity as reference

from controller.cluster.quantity import parse_quantity

NUMBERS = st.from_regex(r"[+-]?([0-9]{1,15}(\.[0-9]{0,6})?|\.[0-9]{1,6})", fullmatch=True)
ENDINGS = st.sampled_from(["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]) | st.from_regex(
    r"[eE][+-]?[0-9]", fullmatch=True
)


def value_of(quantity: str) -> float:
    return float(reference(quantity))  # type: ignore[no-untyped-call]


@given(NUMBERS, ENDINGS)
def test_reads_every_quantity_as_the_kubernetes_client_does(number: str, ending: str) -> None:
    quantity = number + ending
    assert parse_quantity(quantity) == pytest.approx(value_of(quantity), rel=1e-12, abs=0.0)


@given(st.text(alphabet="0123456789.+-eEnumkMGTPEi x_", max_size=8) | st.text(max_size=8))
def test_accepts_nothing_that_the_kubernetes_client_refuses(text: str) -> None:
    try:
        value = parse_quantity(text)
    except ValueError as error:
        assert repr(text) in str(error)  # noqa: PT017 - either outcome is fine, as long as it is the right one
    else:
        assert value == pytest.approx(value_of(text), rel=1e-12, abs=0.0)


@given(st.integers(min_value=0, max_value=10**9))
def test_whole_millicores_come_out_as_the_nearest_float(millicores: int) -> None:
    assert parse_quantity(f"{millicores}m") == millicores / 1000
