"""Which VM to evict, whether one may be evicted now, and what became of it."""
