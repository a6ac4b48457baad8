"""What people see of the programs: metrics and logs. Decisions know nothing of it."""
