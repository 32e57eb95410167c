"""The [decode] section: how a model's predictions become sentences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from regard.config import Settings, read, setting
from regard.errors import ConfigError

Length = TypeVar("Length")  # a number or a tensor

# The widest beam of Koehn and Knowles (2017), far beyond the best one. More are refused and not cut to fewer, or to the
# size of the vocabulary: a narrower beam finds other sentences from the second word on.
MOST_BEAMS = 1_000


@dataclass(frozen=True)
class DecodeConfig(Settings):
    """How to search. `temperature` above 0 samples; otherwise `beam` 1 is greedy and more is beam search."""

    table = "decode"

    beam: int = setting(5, "hypotheses kept at each step; 1 is greedy", f"[1, {MOST_BEAMS}]")
    nbest: int = setting(
        1, "translations returned for each sentence, at most as many as the beam (or samples drawn)", "[1, 10000]"
    )
    max_ratio: float = setting(2.0, "longest output = max_ratio * source tokens + max_extra, END counted", "[0, 1000]")
    max_extra: int = setting(20, "longest output = max_ratio * source tokens + max_extra, END counted", "[0, 1e6]")
    min_length: int = setting(0, "fewest tokens before the sentence may end", "[0, 1e6]")
    length_penalty: float = setting(
        0.6, "GNMT's alpha: score = log-probability / ((5 + length) / 6)^alpha, END counted", "[0, inf)"
    )
    length_offset: float = setting(5.0, "GNMT's 5 above, as k in ((k + length) / (k + 1)); 0 as in Marian", "[0, inf)")
    patient: bool = setting(
        False,
        "search on after `beam` hypotheses have ended, while one that goes on scores better than the worst of them",
    )
    coverage_penalty: float = setting(
        0.0, "GNMT's beta: lowers translations that leave source words without attention; 0 is off", "[0, inf)"
    )
    no_repeat_ngram: int = setting(
        0, "no run of this many tokens occurs twice in one translation; 0 is off", "[0, inf)"
    )
    ban_unknown: bool = setting(False, "never write the unknown word")
    temperature: float = setting(
        0.0, "0 searches for the best; above 0 samples from softmax(logits / temperature)", "[0, inf)"
    )
    top_k: int = setting(0, "sample among this many likeliest tokens; 0 is all", "[0, inf)")
    top_p: float = setting(1.0, "sample among the likeliest tokens that together reach this probability", "(0, 1]")
    seed: int = setting(1, "chooses the samples; the same seed and sentence give the same sample")
    precision: str = setting(
        "float32", "of the model's products; bf16 is faster on a GPU, scores stay float32", ("float32", "bf16")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature == 0 and (self.top_k or self.top_p < 1):
            raise ConfigError(
                "decode.top_k and decode.top_p shape sampling; set decode.temperature above 0, as in 1.0."
            )
        if self.temperature == 0 and self.nbest > self.beam:
            raise ConfigError(
                f"decode.nbest must be at most decode.beam; got nbest {self.nbest} with beam {self.beam}. "
                f"Set decode.beam={self.nbest} or more."
            )

    def changed(self, changes: Mapping[str, Any]) -> "DecodeConfig":
        """The same with some settings changed, None leaving one as it is.

        A beam that is not given grows with `nbest`; one that is given and too narrow is an error.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        if not given:
            return self
        wanted = given.get("nbest", 1)
        if "beam" not in given and not given.get("temperature") and isinstance(wanted, int):
            given["beam"] = max(self.beam, min(wanted, MOST_BEAMS))
        return read(DecodeConfig, given, "decode", over=self)

    def penalty(self, length: Length) -> Length:
        """GNMT's lp(Y) = ((5 + |Y|) / 6)^alpha, by which a log-probability is divided. |Y| counts END."""
        offset: Any = self.length_offset
        penalty: Length = ((offset + length) / (offset + 1)) ** self.length_penalty
        return penalty

    def longest(self, tokens: int) -> int:
        """The most tokens that the translation of `tokens` source tokens may have, END counted."""
        return max(1, math.ceil(self.max_ratio * tokens) + self.max_extra)
