"""``vm-rebalancer plan``: one look at a cluster, and what the descheduler would make of it. Nothing is written."""
