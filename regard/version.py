"""The version of regard, on the ground floor so that every file may name it."""

__version__ = "0.1.0"
