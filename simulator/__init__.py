"""A KubeVirt cluster in one process, to try the controller's real code on."""
