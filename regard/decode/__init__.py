"""A model into sentences: greedy, beam, sampling, ensembles. Search uses only `start` and `step`."""

from regard.decode.beam import SearchStep, beam_search
from regard.decode.ensemble import Ensemble, arithmetic, geometric
from regard.decode.greedy import follow
from regard.decode.hypothesis import Hypothesis, coverage_penalty, flags, length_penalty
from regard.decode.search import decode, longest, search
from regard.decode.settings import DecodeConfig

__all__ = [
    "DecodeConfig",
    "Ensemble",
    "Hypothesis",
    "SearchStep",
    "arithmetic",
    "beam_search",
    "coverage_penalty",
    "decode",
    "flags",
    "follow",
    "geometric",
    "length_penalty",
    "longest",
    "search",
]
