"""Transports, and sources of metrics, that lead to servers of a test."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from controller.policy.model import Metrics
from controller.policy.parse import default_policy
from controller.utilization.prometheus import PrometheusSource
from controller.utilization.reading import Answer
from informers.transport import Transport


def transport_to(url: str, folder: Path) -> Transport:
    """A real transport, from a kubeconfig written into the folder."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": "secret"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    return Transport.from_kubeconfig(str(path))


def metrics_at(
    url: str,
    *,
    token_file: object = "",
    ca_file: object = "",
    headers_file: object = "",
    timeout_s: float = 20.0,
    allow_http: bool = True,
) -> Metrics:
    """That section of a policy. The time is one that no test of ours needs, on however slow a machine."""
    return replace(
        default_policy().metrics,
        url=url,
        token_file=str(token_file),
        ca_file=str(ca_file),
        headers_file=str(headers_file),
        timeout=timedelta(seconds=timeout_s),
        allow_http=allow_http,
    )


class Asking:
    """A source that asks each time as ``metrics`` then says."""

    def __init__(self, metrics: Callable[[], Metrics]) -> None:
        self._metrics = metrics
        self._source = PrometheusSource()
        self.close = self._source.close

    def instant(self, expression: str) -> Answer:
        return self._source.instant(expression, self._metrics())


def always() -> timedelta:
    """Time to write without end: no lease is asked."""
    return timedelta.max


def never() -> timedelta:
    return timedelta(0)
