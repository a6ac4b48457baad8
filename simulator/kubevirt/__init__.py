"""The simulated control plane: API objects, the scheduler, and what KubeVirt does."""
