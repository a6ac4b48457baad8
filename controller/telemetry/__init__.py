"""What people see of the programs: metrics, logs, Events, traces, the last decisions. Decisions know nothing of it."""
