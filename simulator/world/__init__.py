"""Physical truth: CPU, memory and pressure of nodes and VMs, without any API object."""
