"""Scenarios: their schema, how they are read and checked, and what happens in them besides loads."""
