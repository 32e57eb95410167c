"""Syllables, the letters of sequences and names that mean nothing."""

from itertools import product

SYLLABLES = ["".join(pair) for pair in product("bdfgklmnprstvz", "aeiou")]  # 70 tokens
