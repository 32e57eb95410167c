"""The [decode] section: how a model's predictions become sentences."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from regard.config import check_range, read, setting
from regard.errors import ConfigError

# The widest beam of Koehn and Knowles (2017), far beyond the best one. More are refused and not cut to fewer, or to the
# size of the vocabulary: a narrower beam finds other sentences from the second word on.
MOST_BEAMS = 1_000
MOST_SAMPLES = 10_000
MOST_TOKENS = 1_000_000  # of an output, beyond what its source allows
MOST_RATIO = 1_000


@dataclass(frozen=True)
class DecodeConfig:
    """How to search. `temperature` above 0 samples; otherwise `beam` 1 is greedy and more is beam search."""

    beam: int = setting(5, f"hypotheses kept at each step, at most {MOST_BEAMS}; 1 is greedy")
    nbest: int = setting(1, "translations returned for each sentence, at most as many as the beam (or samples drawn)")
    max_ratio: float = setting(2.0, "longest output = max_ratio * source tokens + max_extra, END counted")
    max_extra: int = setting(20, "longest output = max_ratio * source tokens + max_extra, END counted")
    min_length: int = setting(0, "fewest tokens before the sentence may end")
    length_penalty: float = setting(
        0.6, "GNMT's alpha: score = log-probability / ((5 + length) / 6)^alpha, END counted"
    )
    length_offset: float = setting(5.0, "GNMT's 5 above, as k in ((k + length) / (k + 1)); 0 as in Marian")
    patient: bool = setting(
        False,
        "search on after `beam` hypotheses have ended, while one that goes on scores better than the worst of them",
    )
    coverage_penalty: float = setting(
        0.0, "GNMT's beta: lowers translations that leave source words without attention; 0 is off"
    )
    no_repeat_ngram: int = setting(0, "no run of this many tokens occurs twice in one translation; 0 is off")
    ban_unknown: bool = setting(False, "never write the unknown word")
    temperature: float = setting(0.0, "0 searches for the best; above 0 samples from softmax(logits / temperature)")
    top_k: int = setting(0, "sample among this many likeliest tokens; 0 is all")
    top_p: float = setting(1.0, "sample among the likeliest tokens that together reach this probability")
    seed: int = setting(1, "chooses the samples; the same seed and sentence give the same sample")
    precision: str = setting(
        "float32", "of the model's products; bf16 is faster on a GPU, scores stay float32", ("float32", "bf16")
    )

    def __post_init__(self) -> None:
        check_range("decode", self, "[1, inf)", "beam", "nbest")
        check_range(
            "decode", self, "[0, inf)", "max_ratio", "max_extra", "min_length", "length_penalty", "length_offset"
        )
        check_range("decode", self, "[0, inf)", "coverage_penalty", "no_repeat_ngram", "temperature", "top_k")
        check_range("decode", self, "(0, 1]", "top_p")
        _at_most(MOST_TOKENS, "no output is that long", max_extra=self.max_extra, min_length=self.min_length)
        _at_most(MOST_RATIO, "no output is that long", max_ratio=self.max_ratio)
        _at_most(MOST_BEAMS, "the memory of a step grows with its square", beam=self.beam)
        if self.temperature:
            _at_most(MOST_SAMPLES, "more can be drawn with another decode.seed", nbest=self.nbest)
        else:
            _at_most(MOST_BEAMS, "they come out of the beam, which is no wider", nbest=self.nbest)
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise ConfigError(
                "decode.top_k and decode.top_p shape sampling; set decode.temperature above 0, as in 1.0."
            )
        if self.temperature == 0 and self.nbest > self.beam:
            raise ConfigError(
                f"decode.nbest must be at most decode.beam; got nbest {self.nbest} with beam {self.beam}. "
                f"Set decode.beam={self.nbest} or more."
            )


def change_settings(config: DecodeConfig, changes: Mapping[str, Any]) -> DecodeConfig:
    """`config` with some settings changed, None leaving one as it is.

    A beam that is not given grows with `nbest`; one that is given and too narrow is an error.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    wanted = given.get("nbest", 1)
    if "beam" not in given and not given.get("temperature") and isinstance(wanted, int):
        given["beam"] = max(config.beam, min(wanted, MOST_BEAMS))
    return read(DecodeConfig, given, "decode", over=config)


def _at_most(most: int, advice: str, **values: float) -> None:
    for name, value in values.items():
        if value > most:
            raise ConfigError(f"decode.{name} must be at most {most}; got {value}: {advice}.")
