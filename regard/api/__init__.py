"""What wires several floors together: training from settings, and trained models to use and look into."""
