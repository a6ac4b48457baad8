"""Scenarios by name or file: found, read, checked, listed."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from simulator.scenario.checking import Problem, ScenarioErrors, check, unknown_name
from simulator.scenario.cluster_schema import Strict
from simulator.scenario.documents import Document, extended, override, read_document
from simulator.scenario.references import check_references, names_of
from simulator.scenario.schema import Scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
_REPLACED_BY_A_CLUSTER = ("nodes", "vms", "expect")


def load_scenario(name_or_file: str, overrides: Sequence[str] = (), *, cluster: str = "") -> Scenario:
    """A scenario that ships with the program (``hotspot``) or a file (``my.yaml``), with ``--set`` overrides.

    ``cluster``: a dump of a real cluster that takes the place of the scenario's nodes, VMs and expectations.
    Raises ``ScenarioErrors``.
    """
    path = _find(name_or_file)
    document = _read(path, ())
    if cluster:
        document = {key: value for key, value in document.items() if key not in _REPLACED_BY_A_CLUSTER}
        document |= {"cluster": cluster}
    return _convert(document, name_or_file, path.stem, overrides)


def parse_scenario(
    text: str, *, source: str = "scenario", directory: Path = Path(), overrides: Sequence[str] = ()
) -> Scenario:
    """A scenario from YAML text; the files it names are relative to ``directory``. Raises
    ``ScenarioErrors``."""
    return _convert(
        _extend(read_document(text, source, directory), source, directory, ()), source, source, overrides
    )


def list_scenarios() -> list[tuple[str, str]]:
    """(name, what happens in it) of those that ship with the program, by name."""
    return [(path.stem, load_scenario(path.stem).description) for path in sorted(SCENARIOS.glob("*.yaml"))]


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of a scenario file, for editors; descriptions are those of the structs."""
    described = msgspec.json.schema(Scenario)
    structs = {struct.__name__: struct for struct in _all_below(Strict)}
    for name, definition in described["$defs"].items():
        for field, text in _field_texts(structs[name]) if name in structs else ():
            definition.get("properties", {}).get(field, {}).setdefault("description", text)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **described}


def _find(name_or_file: str) -> Path:
    shipped = SCENARIOS / f"{name_or_file}.yaml"
    if "/" not in name_or_file and shipped.is_file():
        return shipped
    path = Path(name_or_file)
    if path.suffix in {".yaml", ".yml"} or path.is_file():
        return path
    names = [item.stem for item in sorted(SCENARIOS.glob("*.yaml"))]
    problem = unknown_name("scenario", name_or_file, names, "scenario")
    raise ScenarioErrors("simulate", [problem._replace(allowed=f"a YAML file, or {problem.allowed}")])


def _read(path: Path, below: tuple[Path, ...]) -> Document:
    source = path.stem if path.parent == SCENARIOS else str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ScenarioErrors(source, [Problem("file", str(reason), "a readable YAML file")]) from None
    return _extend(read_document(text, source, path.parent), source, path.parent, (*below, path.resolve()))


def _extend(document: Document, source: str, directory: Path, below: tuple[Path, ...]) -> Document:
    parent = document.get("extends", "")
    if not isinstance(parent, str) or not parent:
        return document
    path = _find(str(directory / parent) if parent.endswith((".yaml", ".yml")) else parent)
    if path.resolve() in below:
        raise ScenarioErrors(source, [Problem("extends", f"{parent!r} extends this one", "no circles")])
    return extended(_read(path, below), document)


def _convert(document: Document, source: str, name: str, overrides: Sequence[str]) -> Scenario:
    for assignment in overrides:
        document = override(document, assignment)
    document = {"name": name, **document}
    problems = list(check(document, Scenario))
    if problems:
        raise ScenarioErrors(source, problems)
    scenario = msgspec.convert(document, Scenario)
    problems = list(check_references(scenario, None if scenario.cluster else names_of(scenario)))
    if problems:
        raise ScenarioErrors(source, problems)
    return scenario


def _all_below(struct: type[Strict]) -> Iterator[type[Strict]]:
    """What a scenario is made of, but for KubeVirt's options and trouble with metrics: they are not its own."""
    for below in struct.__subclasses__():
        yield below
        yield from _all_below(below)


def _field_texts(struct: type[Strict]) -> Iterator[tuple[str, str]]:
    """(field, its docstring) of a struct, the base classes' too."""
    for base in struct.__mro__:
        if not issubclass(base, Strict):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)  # noqa: S101  it is the source of a class
        for field, text in zip(body.body, body.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
            ):
                yield field.target.id, inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ")
