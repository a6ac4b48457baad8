"""Kubernetes quantities, as far as the simulator writes them itself."""

_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def format_cpu(millis: int) -> str:
    """Thousandths of a core: ``800m``, whole cores as ``128``."""
    return str(millis // 1000) if millis % 1000 == 0 else f"{millis}m"


def parse_cpu(text: str) -> int:
    """Thousandths of a core. Raises ``ValueError``."""
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)


def format_bytes(count: int) -> str:
    """In the largest binary unit that leaves a whole number, at most Gi, as KubeVirt and kubelet do: ``82320Mi``."""
    for unit in ("Gi", "Mi", "Ki"):
        if count and count % _BINARY[unit] == 0:
            return f"{count // _BINARY[unit]}{unit}"
    return str(count)


def parse_bytes(text: str) -> int:
    """Raises ``ValueError``."""
    factor = _BINARY.get(text[-2:])
    return int(text) if factor is None else round(float(text[:-2]) * factor)
