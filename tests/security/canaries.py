"""Secrets that are easy to find again, in every place where the programs take secrets from."""

import base64
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MARK = "c4n4ry"
TOKEN = f"{_MARK}.api-token/with+all=kinds~of-characters"
"""Of the API server, in a kubeconfig or from a plugin."""
PLUGIN_ENVIRONMENT = f"{_MARK}-environment-of-the-plugin"
PLUGIN_STDERR = f"refresh token {_MARK}-stderr-of-the-plugin was refused"
USER, PASSWORD = "somebody", f"{_MARK}-password"
PROXY_PASSWORD = f"{_MARK}-proxy"
CLIENT_KEY = f"{_MARK}-client-key"
PROMETHEUS_TOKEN = f"{_MARK}.prometheus-token"
HEADER = f"{_MARK} of an extra header"
COLLECTOR = f"{_MARK}-collector"


def leaks(text: str) -> list[str]:
    """Where the text holds a secret, in plain or as HTTP carries it: some of what is around."""
    encoded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    proxy = base64.b64encode(f"{USER}:{PROXY_PASSWORD}".encode()).decode()
    found = []
    for mark in (_MARK, encoded, proxy):
        at = text.find(mark)
        if at >= 0:
            found.append(text[max(0, at - 300) : at + 100])
    return found


def kubeconfig(
    path: Path, server: str, user: Mapping[str, Any], cluster: Mapping[str, Any] | None = None
) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": dict(user)}],
    }
    path.write_text(json.dumps(document))
    return path


def plugin(directory: Path, *, status: object, exit_code: int = 0) -> dict[str, Any]:
    """A user whose token comes from a program that prints this, and complains."""
    api = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": api, "kind": "ExecCredential", "status": status}
    program = directory / f"plugin-{len(list(directory.glob('plugin-*')))}.py"
    program.write_text(
        f"import sys\nprint({json.dumps(credential)!r})\n"
        f"print({PLUGIN_STDERR!r}, file=sys.stderr)\nsys.exit({exit_code})\n"
    )
    return {
        "exec": {
            "apiVersion": api,
            "command": sys.executable,
            "args": ["-I", str(program)],
            "env": [{"name": "PLUGIN_SECRET", "value": PLUGIN_ENVIRONMENT}],
            "interactiveMode": "Never",
        }
    }


def policy(directory: Path, url: str) -> Path:
    """One that asks each second, with a token and an extra header."""
    (directory / "prometheus-token").write_text(f"{PROMETHEUS_TOKEN}\n")
    (directory / "headers").write_text(f"X-Scope-Secret: {HEADER}\n")
    metrics = {
        "url": url,
        "allowHttp": True,
        "tokenFile": str(directory / "prometheus-token"),
        "headersFile": str(directory / "headers"),
        "caFile": "",
        "refreshInterval": "1s",
        "timeout": "1s",
        "maxAge": "1m",
    }
    document = {"apiVersion": "vm-rebalancer.io/v1alpha1", "kind": "RebalancePolicy", "metrics": metrics}
    path = directory / "policy.yaml"
    path.write_text(json.dumps(document))
    return path
