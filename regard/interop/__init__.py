"""Other people's models in, other engines out."""
