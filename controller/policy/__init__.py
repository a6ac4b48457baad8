"""The policy: its model, presets and validation."""
