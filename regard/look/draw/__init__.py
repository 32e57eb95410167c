"""The drawings of a trace, one file for each view; `regard.look.trace` chooses among them."""
