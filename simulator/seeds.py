"""Randomness, seeded for each component by its name: one more draw in one place changes nothing elsewhere."""

import hashlib
import random

import numpy as np


def generator(seed: int, component: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{seed}/{component}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "big")))


def plain_random(seed: int, component: str) -> random.Random:
    """The same with the standard library's generator, for code that draws single values."""
    return random.Random(f"{seed}/{component}")
