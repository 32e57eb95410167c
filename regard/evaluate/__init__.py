"""Scores: BLEU, chrF and TER, by length, significance, alignment error, perplexity."""
