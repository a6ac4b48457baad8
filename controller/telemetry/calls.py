"""Requests to the API server as metrics: by verb and resource, as Kubernetes' own clients count them."""

import re

from controller.telemetry.names import Metrics
from informers.transport import Answered

_RESOURCE = re.compile(
    r"/(?:api|apis/[^/]+)/[^/]+(?:/namespaces/[^/]+(?=/))?/(?P<resource>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[a-z]+))?"
)
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def note_calls(metrics: Metrics, answered: Answered) -> None:
    """Count a request that has come to an end. ``code`` is ``none`` if no answer came."""
    verb, resource = what_was_asked(answered)
    metrics.api_requests.labels(verb, resource, str(answered.status) if answered.status else "none").inc()
    metrics.api_duration.labels(verb, resource).observe(answered.took_s)


def what_was_asked(answered: Answered) -> tuple[str, str]:
    """Verb and resource (``pods/eviction``), never a name: there are as many of those as objects."""
    match = _RESOURCE.fullmatch(answered.path)
    if match is None:
        return answered.method.lower(), "other"
    resource = "/".join(filter(None, match.group("resource", "subresource")))
    read = "watch" if answered.watch else "get" if match["name"] else "list"
    return _VERBS.get(answered.method, read), resource
