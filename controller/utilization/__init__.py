"""What nodes feel: snapshots of metrics, their recent history, classification."""
