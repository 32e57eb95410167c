"""The version of regard, in a file without imports, so that every file can import it."""

__version__ = "0.1.0"
