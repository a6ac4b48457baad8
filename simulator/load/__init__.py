"""What the VMs want, over time."""
