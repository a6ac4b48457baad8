"""The effective policy as a document that parses to the same policy again, and its digest."""

import hashlib
import json
from typing import Any

import yaml

from controller.policy.document import resolve_plain
from controller.policy.durations import format_duration
from controller.policy.model import (
    API_VERSION,
    KIND,
    Bounds,
    BoundsKind,
    Evictions,
    Metrics,
    Policy,
    Query,
    Thresholds,
)

_BOUNDS_FIELD = {BoundsKind.DEVIATION: "deviationThresholds", BoundsKind.STATIC: "utilizationThresholds"}


def effective_document(policy: Policy) -> dict[str, Any]:
    """Every field with the value that applies, as plain values for YAML or JSON; without the digest."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "mode": str(policy.mode),
        "nodeSelector": str(policy.node_selector),
        "metrics": _metrics(policy.metrics),
        "thresholds": _thresholds(policy.thresholds),
        "evictions": _evictions(policy.evictions),
        "softTaints": {
            "mode": str(policy.soft_taints.mode),
            "scheme": str(policy.soft_taints.scheme),
            "levels": policy.soft_taints.levels,
            "scale": str(policy.soft_taints.scale),
        },
    }


def policy_yaml(policy: Policy) -> str:
    """The effective policy as YAML, under comments with its digest and with what it does not state itself."""
    document = yaml.dump(effective_document(policy), Dumper=_Dumper, sort_keys=False, width=110)
    comments = [f"# digest: {policy.digest}\n"]
    if policy.effective_settle != policy.evictions.settle:
        effective = format_duration(policy.effective_settle)
        comments.append(f"# settle in effect: {effective} (longest window of the queries + 60 s)\n")
    return "".join((*comments, document))


def digest_of(policy: Policy) -> str:
    """What :attr:`Policy.digest` of this policy is."""
    canonical = json.dumps(effective_document(policy), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _metrics(metrics: Metrics) -> dict[str, Any]:
    return {
        "url": metrics.url,
        "tokenFile": metrics.token_file,
        "caFile": metrics.ca_file,
        **({"actualUtilizationProfile": metrics.profile} if metrics.profile else {}),
        "queries": [] if metrics.profile else [_query(query) for query in metrics.queries],
        "nodeLabel": metrics.node_label,
        "refreshInterval": format_duration(metrics.refresh_interval),
        "timeout": format_duration(metrics.timeout),
        "maxAge": format_duration(metrics.max_age),
        "minCoverage": metrics.min_coverage,
        "allowHttp": metrics.allow_http,
        "headersFile": metrics.headers_file,
    }


def _query(query: Query) -> dict[str, Any]:
    own = {"thresholds": _bounds(query.thresholds)} if query.thresholds else {}
    return {"name": query.name, "query": query.expression, "window": format_duration(query.window), **own}


def _bounds(bounds: Bounds) -> dict[str, Any]:
    return {_BOUNDS_FIELD[bounds.kind]: {"under": bounds.under, "over": bounds.over}}


def _thresholds(thresholds: Thresholds) -> dict[str, Any]:
    floor = thresholds.floor
    return {
        **_bounds(thresholds.bounds),
        "sustain": thresholds.sustain,
        "floor": {"cpu": floor.cpu, "memory": floor.memory, "pressure": floor.pressure},
    }


def _evictions(evictions: Evictions) -> dict[str, Any]:
    breaker, cooldown, namespaces = evictions.breaker, evictions.cooldown, evictions.namespaces
    return {
        "limits": {"node": evictions.limits.node, "total": evictions.limits.total},
        "namespaces": {"include": list(namespaces.include), "exclude": list(namespaces.exclude)},
        "labelSelector": str(evictions.label_selector),
        "priorityThreshold": evictions.priority_threshold,
        "minVmAge": format_duration(evictions.min_vm_age),
        "order": str(evictions.order),
        "minGain": evictions.min_gain,
        "settle": format_duration(evictions.settle),
        "acknowledgeTimeout": format_duration(evictions.acknowledge_timeout),
        "breaker": {
            "failures": breaker.failures,
            "within": format_duration(breaker.within),
            "rest": format_duration(breaker.rest),
        },
        "migrationTimeout": format_duration(evictions.migration_timeout),
        "cooldown": {
            "base": format_duration(cooldown.base),
            "max": format_duration(cooldown.max),
            "window": format_duration(cooldown.window),
        },
        "allowShutdown": evictions.allow_shutdown,
    }


class _Dumper(yaml.SafeDumper):
    """Quotes what would be read back as something else than text; writes texts of several lines as blocks."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None if isinstance(resolve_plain(text), str) else "'"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.represent_text)
