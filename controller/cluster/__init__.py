"""What the controller knows of the cluster: decoded objects, pure questions about them, joins."""
