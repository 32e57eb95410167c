"""Corpora that regard generates itself, so that everything works with nothing downloaded."""
