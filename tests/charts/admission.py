"""A ValidatingAdmissionPolicy evaluated as the API server would, by Google's CEL runtime."""

from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel

Object = dict[str, Any]


class AdmissionPolicy:
    """``spec`` of a policy. Compiling it type-checks each expression with ``object`` and ``oldObject`` dynamic."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        names = ("object", "oldObject", "request", "variables")
        env = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))
        self._conditions = [env.compile(c["expression"]) for c in spec["matchConditions"]]
        self._variables = {v["name"]: env.compile(v["expression"]) for v in spec["variables"]}
        self._validations = [(env.compile(v["expression"]), v["message"]) for v in spec["validations"]]

    def without(self, index: int) -> "AdmissionPolicy":
        """The same without one of its validations."""
        other = object.__new__(AdmissionPolicy)
        other._conditions, other._variables = self._conditions, self._variables
        other._validations = [v for i, v in enumerate(self._validations) if i != index]
        return other

    def __len__(self) -> int:
        return len(self._validations)

    def concerns(self, user: str) -> bool:
        request = {"userInfo": {"username": user}}
        data = {"request": request, "object": {}, "oldObject": {}, "variables": {}}
        return all(_truth(condition, data) for condition in self._conditions)

    def refusals(self, old: Object, new: Object) -> list[str]:
        """Messages of the validations that do not hold; empty: admitted."""
        data: dict[str, Any] = {"request": {}, "object": new, "oldObject": old, "variables": {}}
        for name, expression in self._variables.items():
            data["variables"] = {**data["variables"], name: _value(expression, data)}
        return [message for expression, message in self._validations if not _truth(expression, data)]


def _value(expression: cel.Expression, data: Mapping[str, Any]) -> Any:
    result = expression.eval(data=data)
    assert result.type() != cel.Type.ERROR, (
        result.value()
    )  # the API server refuses then, with this in its answer
    return result.plain_value()


def _truth(expression: cel.Expression, data: Mapping[str, Any]) -> bool:
    value = _value(expression, data)
    assert isinstance(value, bool), value
    return value
