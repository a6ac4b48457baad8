"""Files for a real Prometheus beside the simulated cluster: its configuration, and the chart's recording rules.

When the cluster runs faster than real time, every window and interval is as many times shorter.
"""

import re
from datetime import timedelta

_WINDOW = re.compile(r"\[([0-9]+[smh])\]")
_INTERVAL = re.compile(r"^(\s*interval:\s*)([0-9]+[smh])\b", re.MULTILINE)
_UNITS_S = {"s": 1, "m": 60, "h": 3600}
_SCRAPE_S = 30.0
_LOOKBACK_S = 300.0

_CONFIGURATION = """\
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
  evaluation_interval: {interval}
rule_files: [recording-rules.yaml]
scrape_configs:
  - job_name: simulated-cluster
    honor_labels: true  # label instance is the node's name
    static_configs: [{{targets: ["{target}"]}}]
"""


def faster_rules(text: str, speed: float) -> str:
    """A rules file whose windows and intervals are ``speed`` times shorter; nothing else is touched."""
    text = _WINDOW.sub(lambda match: f"[{_shorter(match[1], speed)}]", text)
    return _INTERVAL.sub(lambda match: match[1] + _shorter(match[2], speed), text)


def configuration(target: str, speed: float) -> str:
    """``prometheus.yml`` that scrapes the exporter at ``target`` (``host:port``)."""
    return _CONFIGURATION.format(interval=_text(_SCRAPE_S / speed), target=target)


def lookback(speed: float) -> str:
    """For ``--query.lookback-delta``: how old a sample may be that Prometheus answers with."""
    return _text(_LOOKBACK_S / speed)


def _shorter(duration: str, speed: float) -> str:
    return _text(int(duration[:-1]) * _UNITS_S[duration[-1]] / speed)


def _text(seconds: float) -> str:
    """A Prometheus duration, whole milliseconds."""
    milliseconds = round(timedelta(seconds=seconds) / timedelta(milliseconds=1))
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"
