"""Soft taints: what nodes should carry."""
