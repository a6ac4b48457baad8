"""The programs are killed at each of their steps and started again, in virtual time."""
