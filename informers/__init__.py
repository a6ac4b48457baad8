"""Kubernetes list/watch machinery: stores, work queue, workers. Knows no VM and no policy."""
