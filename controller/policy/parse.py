"""Policy text to the effective policy: defaults filled in, presets expanded, everything checked.

One function per section reads its fields and then compares them with each other. The defaults stand here, and
again in ``docs/policy.md``; a test compares the two.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

from controller.policy import presets
from controller.policy.document import Document, UnreadableError, Value, read_document
from controller.policy.fields import Section
from controller.policy.model import (
    API_VERSION,
    KIND,
    Bounds,
    BoundsKind,
    Breaker,
    Cooldown,
    Evictions,
    Floor,
    Limits,
    Metrics,
    Mode,
    NamespaceFilter,
    Order,
    Policy,
    Query,
    SoftTaintMode,
    SoftTaints,
    TaintScale,
    TaintScheme,
    Thresholds,
)
from controller.policy.problems import PolicyErrors, Problem, Problems, describe, nearest_name
from controller.policy.render import digest_of

CONFIG_MAP_KEY = "policy.yaml"

_SERVICE_ACCOUNT_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
_THANOS_QUERIER = "https://thanos-querier.openshift-monitoring.svc:9091"
_MAX_QUERIES = 20
_MAX_MOVES = 1000
_MAX_LEVELS = 10
_LONGEST_EXPRESSION = 10_000

_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)

_URL = "a URL such as https://prometheus.example:9090/prefix, without user, query or fragment"
_QUERY_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_NAMESPACE_GLOB = re.compile(r"[a-z0-9*?-]{1,63}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_URL_TEXT = re.compile(r"[!-~]{1,2000}")


def parse_policy(text: str, *, source: str = "policy", default_mode: Mode = Mode.PREDICTIVE) -> Policy:
    """The effective policy of a ``RebalancePolicy`` document, or of a ConfigMap manifest that holds one.

    ``source`` names the text in messages. ``default_mode`` applies where the document states no mode. Raises
    :class:`~controller.policy.problems.PolicyErrors` with every problem there is.
    """
    try:
        document = read_document(text)
        if isinstance(document.value, dict) and document.value.get("kind") == "ConfigMap":
            document = _embedded_document(document, document.value)
    except UnreadableError as error:
        raise PolicyErrors(source, [error.problem]) from None
    problems = Problems(document.lines)
    policy = _policy(document.value, problems, default_mode)
    found = problems.in_order(*document.duplicates)
    if policy is None or found:
        raise PolicyErrors(source, found)
    return replace(policy, digest=digest_of(policy))


def default_policy(mode: Mode = Mode.PREDICTIVE) -> Policy:
    """What a policy means that states nothing."""
    return parse_policy(f"apiVersion: {API_VERSION}\nkind: {KIND}\n", default_mode=mode)


def _embedded_document(outer: Document, config_map: Mapping[str, Value]) -> Document:
    """What stands in a ConfigMap's ``data["policy.yaml"]``. Raises ``UnreadableError`` if nothing does."""
    if outer.duplicates:
        raise UnreadableError(outer.duplicates[0])
    data = config_map.get("data")
    allowed = f"a policy as text under the ConfigMap's key {CONFIG_MAP_KEY}"
    if not isinstance(data, dict):
        raise UnreadableError(Problem("data", describe(data), allowed, line=outer.lines.get("data", 0)))
    path = f'data."{CONFIG_MAP_KEY}"'
    policy = data.get(CONFIG_MAP_KEY)
    if not isinstance(policy, str):
        nearest = "" if CONFIG_MAP_KEY in data else nearest_name(CONFIG_MAP_KEY, data)
        line = outer.lines.get(path, outer.lines["data"])
        raise UnreadableError(Problem(path, describe(policy), allowed, nearest, line))
    return read_document(policy, first_line=outer.literals.get(path))


def _policy(value: Value, problems: Problems, default_mode: Mode) -> Policy | None:
    """``None`` if the document is of another kind, whose fields say nothing here."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if isinstance(kind, str) and not nearest_name(kind, [KIND]):
        problems.add("kind", describe(kind), f"{KIND}, or a ConfigMap that holds one")
        return None
    with Section(value, "", problems, optional=False) as top:
        top.name("apiVersion", API_VERSION, [API_VERSION], required=True)
        top.name("kind", KIND, [KIND], required=True)
        mode = top.choice("mode", default_mode)
        node_selector = top.selector("nodeSelector", "kubevirt.io/schedulable=true")
        with top.section("metrics") as section:
            metrics = _metrics(section)
        with top.section("thresholds") as section:
            thresholds = _thresholds(section)
        with top.section("evictions") as section:
            evictions = _evictions(section)
        with top.section("softTaints") as section:
            soft_taints = _soft_taints(section)
    return Policy(mode, node_selector, metrics, thresholds, evictions, soft_taints, digest="")


def _metrics(section: Section) -> Metrics:
    url = section.text("url", _THANOS_QUERIER, _URL, _is_url)
    token_file = section.file("tokenFile", _SERVICE_ACCOUNT_TOKEN)
    ca_file = section.file("caFile", "/etc/prometheus-ca/service-ca.crt")
    profile, queries = _queries(section)
    metrics = Metrics(
        url=url,
        token_file=token_file,
        ca_file=ca_file,
        queries=queries,
        profile=profile,
        node_label=section.text("nodeLabel", "instance", "the name of a label", _LABEL_NAME.fullmatch),
        refresh_interval=section.duration("refreshInterval", 30 * _SECOND, _SECOND),
        timeout=section.duration("timeout", 10 * _SECOND, _SECOND / 10),
        max_age=section.duration("maxAge", 3 * _MINUTE, _SECOND),
        min_coverage=section.fraction("minCoverage", 0.6),
        allow_http=section.flag("allowHttp", False),
        headers_file=section.file("headersFile", ""),
    )
    if urlsplit(url).scheme == "http" and section.sound("allowHttp") and not metrics.allow_http:
        section.problem("url", describe(url), "https only, unless allowHttp is true")
    section.at_most("timeout", metrics.timeout, "refreshInterval", metrics.refresh_interval)
    section.at_most("refreshInterval", metrics.refresh_interval, "maxAge", metrics.max_age)
    return metrics


def _queries(section: Section) -> tuple[str, tuple[Query, ...]]:
    """The name of the preset, empty without one, and the queries."""
    profile = section.name("actualUtilizationProfile", "PrometheusCPUMemoryCombinedProfile", presets.QUERIES)
    queries: list[Query] = []
    for item in section.sections("queries", at_most=_MAX_QUERIES):
        with item:
            query = _own_query(item)
        if item.sound("name") and query.name in (other.name for other in queries):
            item.problem("name", f"{describe(query.name)} again", "a name of its own for each query")
        queries.append(query)
    if not queries:
        return profile, (presets.QUERIES[profile],)
    if section.holds("actualUtilizationProfile"):
        section.problem("actualUtilizationProfile", describe(profile), "nothing beside queries of one's own")
    return "", tuple(queries)


def _own_query(section: Section) -> Query:
    valid_name = "a name of letters, digits, _ . - that begins with a letter"
    name = section.text("name", "", valid_name, _QUERY_NAME.fullmatch, required=True)
    expression = section.text(
        "query", "", "a PromQL expression without control characters", _is_expression, required=True
    )
    window = section.duration("window", _MINUTE, _SECOND, required=True)
    with section.section("thresholds") as own:
        thresholds = _bounds(own)
    return Query(name, expression.strip(), recorded=False, window=window, thresholds=thresholds)


def _thresholds(section: Section) -> Thresholds:
    bounds = _bounds(section)
    with section.section("floor") as floor:
        return Thresholds(
            bounds=bounds or presets.DEVIATION_THRESHOLDS["AsymmetricLow"],
            sustain=section.integer("sustain", 2, 1, 100),
            floor=Floor(
                floor.fraction("cpu", 0.6), floor.fraction("memory", 0.8), floor.fraction("pressure", 0.05)
            ),
        )


def _bounds(section: Section) -> Bounds | None:
    """Deviation or static, by the name of a preset or as numbers; ``None`` if there is neither."""
    deviation = _bounds_in(section, "deviationThresholds", BoundsKind.DEVIATION, presets.DEVIATION_THRESHOLDS)
    static = _bounds_in(section, "utilizationThresholds", BoundsKind.STATIC, presets.UTILIZATION_THRESHOLDS)
    if section.holds("deviationThresholds") and section.holds("utilizationThresholds"):
        section.problem("utilizationThresholds", "both kinds of thresholds", "this or deviationThresholds")
    return deviation or static


def _bounds_in(section: Section, key: str, kind: BoundsKind, named: Mapping[str, Bounds]) -> Bounds | None:
    stated = section.name_or_section(key, named, "a mapping of under and over")
    if not isinstance(stated, Section):
        return named[stated] if stated else None
    with stated as numbers:
        under = numbers.fraction("under", 0.0, required=True)
        over = numbers.fraction("over", 1.0, required=True)
        if kind is BoundsKind.STATIC and under > over and numbers.sound("under", "over"):
            numbers.problem("under", describe(under), f"at most over ({over})")
    return Bounds(kind, under, over)


def _evictions(section: Section) -> Evictions:
    evictions = Evictions(
        limits=_limits(section),
        namespaces=_namespaces(section),
        label_selector=section.selector("labelSelector", ""),
        priority_threshold=section.integer_or_null("priorityThreshold", -(2**31), 2**31 - 1),
        min_vm_age=section.duration("minVmAge", 5 * _MINUTE),
        order=section.choice("order", Order.BEST_FIT),
        min_gain=section.fraction("minGain", 0.01),
        settle=section.duration("settle", 2 * _MINUTE, _SECOND),
        acknowledge_timeout=section.duration("acknowledgeTimeout", 90 * _SECOND, _SECOND),
        breaker=_breaker(section),
        migration_timeout=section.duration("migrationTimeout", 30 * _MINUTE, _SECOND),
        cooldown=_cooldown(section),
        allow_shutdown=section.flag("allowShutdown", False),
    )
    section.at_most(
        "acknowledgeTimeout", evictions.acknowledge_timeout, "migrationTimeout", evictions.migration_timeout
    )
    return evictions


def _limits(section: Section) -> Limits:
    preset = section.name("multiEvictions", "Simple", presets.MULTI_EVICTIONS)
    with section.section("limits") as limits:
        node = limits.integer("node", presets.MULTI_EVICTIONS[preset], 1, _MAX_MOVES)
        total = limits.integer("total", 5, 1, _MAX_MOVES)
    if node > total and section.sound("multiEvictions", "limits"):
        stated = limits.holds("node")
        found = str(node) if stated else f"{node} (from multiEvictions {preset})"
        limits.problem("node", found, f"at most total ({total})")
    return Limits(node, total)


def _namespaces(section: Section) -> NamespaceFilter:
    glob = "the name of a namespace or a glob of a-z, 0-9, -, * and ?"
    with section.section("namespaces") as namespaces:
        include = namespaces.texts("include", (), glob, _NAMESPACE_GLOB.fullmatch)
        exclude = namespaces.texts("exclude", ("kube-system", "openshift-*"), glob, _NAMESPACE_GLOB.fullmatch)
        if namespaces.sound("include", "exclude"):
            for both in sorted({*include} & {*exclude}):
                namespaces.problem(
                    "include", f"{describe(both)}, which exclude holds too", "what is not excluded"
                )
    return NamespaceFilter(include, exclude)


def _breaker(section: Section) -> Breaker:
    with section.section("breaker") as breaker:
        return Breaker(
            failures=breaker.integer("failures", 3, 1, 100),
            within=breaker.duration("within", 10 * _MINUTE, _SECOND),
            rest=breaker.duration("rest", _HOUR),
        )


def _cooldown(section: Section) -> Cooldown:
    with section.section("cooldown") as fields:
        cooldown = Cooldown(
            base=fields.duration("base", 15 * _MINUTE),
            max=fields.duration("max", 6 * _HOUR),
            window=fields.duration("window", 48 * _HOUR, _SECOND),
        )
        fields.at_most("base", cooldown.base, "max", cooldown.max)
        # a migration is forgotten after the window, and its cool-down with it
        fields.at_most("max", cooldown.max, "window", cooldown.window)
    return cooldown


def _soft_taints(section: Section) -> SoftTaints:
    return SoftTaints(
        mode=section.choice("mode", SoftTaintMode.ENABLED),
        scheme=section.choice("scheme", TaintScheme.TIERED),
        levels=section.integer("levels", 3, 1, _MAX_LEVELS),
        scale=section.choice("scale", TaintScale.LINEAR),
    )


def _is_url(text: str) -> bool:
    if not _URL_TEXT.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return False
    return not (parts.username is not None or "?" in text or "#" in text)


def _is_expression(text: str) -> bool:
    return bool(text.strip()) and len(text) <= _LONGEST_EXPRESSION and not _CONTROL.search(text)
