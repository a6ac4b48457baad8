"""Ways to install the chart that the tests look at: name -> flags of `helm template`."""

from functools import cache
from pathlib import Path

from tests.charts.helm import CHART, PROMETHEUS_OPERATOR, Object, render

VALUES = Path(__file__).parent / "values"

MATRIX = {
    "openshift": PROMETHEUS_OPERATOR,
    "openshift-old": ("--kube-version", "1.30.0"),
    "kubernetes": (*PROMETHEUS_OPERATOR, "--values", str(CHART / "examples" / "kube-prometheus-stack.yaml")),
    "read-only": (*PROMETHEUS_OPERATOR, "--values", str(VALUES / "read-only.yaml")),
    "everything": ("--values", str(VALUES / "everything.yaml")),
    "least": (*PROMETHEUS_OPERATOR, "--values", str(VALUES / "least.yaml")),
}


@cache
def rendered(name: str) -> list[Object]:
    return render(*MATRIX[name])
