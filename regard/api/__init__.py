"""The Python interface: training from settings, and trained models to use and inspect."""
