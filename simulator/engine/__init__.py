"""Drives the controller's real code on the simulated cluster, in virtual time.

The only part of the simulator that knows the controller: a simulated KubeVirt that shared the controller's idea of
KubeVirt would share its mistakes and hide them.
"""
