"""What Prometheus records of the world, a little later, and what can go wrong with it."""
