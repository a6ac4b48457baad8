"""Kubeconfig files: one text for people, or one with token and CA in files beside it, as pods have them."""

import base64
import os
from pathlib import Path

import yaml

CONTEXT = "vm-rebalancer-simulator"


def write_whole(path: Path, url: str, authority: bytes, user: str, token: str, namespace: str) -> None:
    """Everything in one file. Raises ``OSError``."""
    cluster = {"certificate-authority-data": base64.b64encode(authority).decode()}
    _write(path, _document(url, cluster, user, {"token": token}, namespace))


def write_rotating(path: Path, url: str, authority: bytes, user: str, token: str, namespace: str) -> None:
    """The token in ``PATH.token`` and the CA in ``PATH.crt``, so that both can be replaced. Raises ``OSError``."""
    token_file, authority_file = (
        path.absolute().with_name(f"{path.name}.{ending}") for ending in ("token", "crt")
    )
    write_private(token_file, token.encode())
    write_private(authority_file, authority)
    cluster = {"certificate-authority": str(authority_file)}
    _write(path, _document(url, cluster, user, {"tokenFile": str(token_file)}, namespace))


def write_private(path: Path, content: bytes) -> None:
    """Replace a file at once, so that nobody reads half of it; only its owner may read it. Raises ``OSError``."""
    beside = path.with_name(f".{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    beside.replace(path)


def _write(path: Path, document: dict[str, object]) -> None:
    write_private(path, yaml.safe_dump(document, sort_keys=False).encode())


def _document(
    url: str, cluster: dict[str, str], user: str, credentials: dict[str, str], namespace: str
) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": {"server": url, **cluster}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [
            {"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user, "namespace": namespace}}
        ],
        "current-context": CONTEXT,
    }
