"""The rebalancer: decisions about virtual machines on KubeVirt clusters, and the programs around them."""
