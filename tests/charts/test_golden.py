"""What the chart renders, for each way to install it. `pytest --update` writes the files anew."""

import copy
from pathlib import Path

import pytest
import yaml

from tests.charts.helm import CHART, Object, of_kind
from tests.charts.matrix import MATRIX, rendered

GOLDEN = Path(__file__).parents[1] / "golden" / "chart"
ELSEWHERE = "(in a file of the chart)"


def shown(objects: list[Object]) -> str:
    """By kind and name; without the long texts that are files of the chart."""
    objects = sorted(copy.deepcopy(objects), key=lambda o: (o["kind"], o["metadata"]["name"]))
    for obj in objects:
        if obj["kind"] == "PrometheusRule" and obj["metadata"]["name"].endswith("-recording"):
            obj["spec"]["groups"] = ELSEWHERE
        if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-dashboard"):
            obj["data"] = ELSEWHERE
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


@pytest.mark.parametrize("name", MATRIX)
def test_renders_the_golden_manifests(name: str, update_golden: bool) -> None:
    path = GOLDEN / f"{name}.yaml"
    text = shown(rendered(name))
    if update_golden:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        "compare, then: pytest tests/charts/test_golden.py --update"
    )


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*")} == set(MATRIX)


def test_recording_rules_are_the_chart_s_file() -> None:
    file = yaml.safe_load((CHART / "files" / "recording-rules.yaml").read_text(encoding="utf-8"))
    (rule,) = (
        o
        for o in of_kind(rendered("openshift"), "PrometheusRule")
        if o["metadata"]["name"].endswith("-recording")
    )
    assert rule["spec"] == file
