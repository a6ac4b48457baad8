"""Renders the chart with helm."""

import subprocess
from collections.abc import Mapping
from typing import Any

import yaml

from e2e.tools import ROOT, helm

CHART = ROOT / "charts" / "vm-rebalancer"
RELEASE = "vm-rebalancer"
NAMESPACE = "rebalancing"
PROMETHEUS_OPERATOR = ("--api-versions", "monitoring.coreos.com/v1")

Object = dict[str, Any]


class _Quoted(yaml.SafeDumper):
    """Quotes all texts: to helm, `Y` is a truth value."""


_Quoted.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def run_helm(*arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """With `values` as the last values file."""
    given = () if values is None else ("--values", "-")
    return subprocess.run(  # noqa: S603
        [helm(), *arguments, *given],
        input=None if values is None else yaml.dump(values, Dumper=_Quoted, allow_unicode=True),
        capture_output=True,
        text=True,
        check=False,
    )


def try_template(*flags: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """What may be refused: exit code and stderr tell."""
    return run_helm("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *flags, values=values)


def template(*flags: str, values: Mapping[str, Any] | None = None) -> str:
    """The rendered manifests as text."""
    done = try_template(*flags, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render(*flags: str, values: Mapping[str, Any] | None = None) -> list[Object]:
    """The rendered objects, those of hooks too."""
    return objects_in(template(*flags, values=values))


def objects_in(manifests: str) -> list[Object]:
    return [obj for obj in yaml.safe_load_all(manifests) if obj]


def named(objects: list[Object], kind: str, suffix: str = "") -> Object:
    """The one object of a kind whose name is the release's and a suffix."""
    name = f"{RELEASE}-{suffix}" if suffix else RELEASE
    (found,) = (o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)
    return found


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [o for o in objects if o["kind"] in kinds]
