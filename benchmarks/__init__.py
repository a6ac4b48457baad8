"""Measurements of speed and size. They print ratios of what was measured in one run, and assert nothing."""
