"""Sentences into numbers: BLEU, chrF and TER, by length, significance, alignment error, perplexity."""

from regard.data.pharaoh import Alignment, Gold, format_pharaoh, parse_gold, parse_pharaoh
from regard.evaluate.alignment import (
    SYMMETRISATIONS,
    AlignmentScore,
    argmax_links,
    mutual_argmax_links,
    read_gold,
    read_pharaoh,
    score_alignments,
    symmetrise,
    threshold_links,
    write_pharaoh,
)
from regard.evaluate.by_length import LengthBin, LengthTable, by_length, plot_by_length
from regard.evaluate.scores import METRICS, Score, ScoreReport, perplexity, score
from regard.evaluate.significance import Comparison, paired_bootstrap

__all__ = [
    "METRICS",
    "SYMMETRISATIONS",
    "Alignment",
    "AlignmentScore",
    "Comparison",
    "Gold",
    "LengthBin",
    "LengthTable",
    "Score",
    "ScoreReport",
    "argmax_links",
    "by_length",
    "format_pharaoh",
    "mutual_argmax_links",
    "paired_bootstrap",
    "parse_gold",
    "parse_pharaoh",
    "perplexity",
    "plot_by_length",
    "read_gold",
    "read_pharaoh",
    "score",
    "score_alignments",
    "symmetrise",
    "threshold_links",
    "write_pharaoh",
]
