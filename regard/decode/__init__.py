"""A model into sentences: greedy, beam, sampling, ensembles. Search knows only `start` and `step`."""

from regard.decode.beam import Step, beam_search
from regard.decode.coverage import Weigh, coverage_penalty
from regard.decode.degenerate import Flag, flags
from regard.decode.ensemble import Ensemble, arithmetic, geometric
from regard.decode.hypothesis import Ended, Hypothesis, length_penalty
from regard.decode.path import follow, likeliest
from regard.decode.sampling import Sampler
from regard.decode.search import decode, longest, search
from regard.decode.settings import DecodeConfig

__all__ = [
    "DecodeConfig",
    "Ended",
    "Ensemble",
    "Flag",
    "Hypothesis",
    "Sampler",
    "Step",
    "Weigh",
    "arithmetic",
    "beam_search",
    "coverage_penalty",
    "decode",
    "flags",
    "follow",
    "geometric",
    "length_penalty",
    "likeliest",
    "longest",
    "search",
]
