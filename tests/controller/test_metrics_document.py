"""docs/metrics.md has all metrics there are. `pytest --update` writes its tables anew."""

import re
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry

from controller.telemetry.names import OURS, UPSTREAM, Family, Kind, Metrics

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
TABLE = re.compile(r"(<!-- metrics: (\w+) -->\n)(.*?)(<!-- end of metrics -->)", re.DOTALL)
GROUPS = {"ours": OURS, "upstream": UPSTREAM}


def table(families: Iterable[Family]) -> str:
    rows = ["| Metric | Type | Labels | Meaning |", "| --- | --- | --- | --- |"]
    for family in sorted(families):
        parts = ", ".join(f"`{part}`" for part in ("_bucket", "_sum", "_count"))
        labels = ", ".join(f"`{label}`" for label in family.labels)
        name = f"`{family.name}`" + (f" ({parts})" if family.kind is Kind.HISTOGRAM else "")
        rows.append(f"| {name} | {family.kind} | {labels} | {family.text} |")
    return "\n" + "\n".join(rows) + "\n\n"


def test_the_document_has_every_metric_with_its_type_labels_and_meaning(update_golden: bool) -> None:
    families = Metrics(CollectorRegistry()).families
    text = PAGE.read_text(encoding="utf-8")
    tables = {
        group: table(family for family in families if family.name.startswith(prefix))
        for group, prefix in GROUPS.items()
    }
    wanted = TABLE.sub(lambda found: f"{found[1]}{tables[found[2]]}{found[4]}", text)
    if update_golden:
        PAGE.write_text(wanted, encoding="utf-8")
    assert [found[2] for found in TABLE.finditer(text)] == list(GROUPS)
    assert wanted == PAGE.read_text(encoding="utf-8"), (
        "pytest tests/controller/test_metrics_document.py --update"
    )
