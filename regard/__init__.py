"""Train, run and look inside attention sequence-to-sequence models."""

__version__ = "0.1.0"
