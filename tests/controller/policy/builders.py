"""Policy texts for the tests."""

HEAD = "apiVersion: vm-rebalancer.io/v1alpha1\nkind: RebalancePolicy\n"

OWN_QUERIES = """\
metrics:
  queries:
  - name: cpu
    query: avg_over_time(node_load[5m])
    window: 5m
    thresholds:
      utilizationThresholds: High
  - name: memory
    query: node_memory
    window: 1m
"""


def policy_text(body: str = "") -> str:
    return HEAD + body


def config_map(policy: str) -> str:
    """A manifest as ``kubectl create configmap --dry-run -o yaml`` prints it."""
    block = "".join(f"    {line}\n" for line in policy.splitlines())
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: policy\ndata:\n  policy.yaml: |\n{block}"
