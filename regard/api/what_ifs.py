"""What-ifs by name: `Mask("station")` hides a word, and `Silence("1.0")` removes head 0 of layer 1."""

import re
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from regard.api.tracing import tokens_of
from regard.data.vocabulary import Tokenised
from regard.errors import ConfigError, counted, numbered
from regard.look.change import Change, Mask, Silence, find
from regard.look.table import Show, labels
from regard.look.text import label
from regard.text.normalise import rewrite


def locate(changes: Sequence[Change], model: nn.Module, encoded: Tokenised) -> list[Change]:
    """`changes` with words of the sentence `encoded` as positions, and layers and heads as modules of `model`."""
    found: list[Change] = []
    for change in changes:
        if isinstance(change, Mask) and isinstance(change.position, str):
            found += [replace(change, position=at, word=text) for at, text in _pieces(encoded, change.position)]
        else:
            found.append(_module(change, model) if isinstance(change, Silence) else change)
    return found


def _module(change: Silence, model: nn.Module) -> Silence:
    """LAYER or LAYER.HEAD of the attention over the source, from 0; any other name is that of a module."""
    numbers = re.fullmatch(r"([0-9]{1,4})(?:\.([0-9]{1,4}))?", change.name)
    if numbers is None:
        return change
    cross, layer = find(model, None), int(numbers[1])
    if layer >= len(cross):
        have = numbered("layer", len(cross))
        raise ConfigError(f"There is no layer {layer} of attention over the source; this model has {have}.")
    return Silence(cross[layer], change.head if numbers[2] is None else int(numbers[2]))


def _pieces(encoded: Tokenised, word: str) -> list[tuple[int, str]]:
    """The positions of all pieces of a source word, given by its text (every occurrence) or by its number from 0.

    A word is what a picture shows in one cell ("1992" of "1992.") or the text between two spaces ("1992.").
    """
    tokens, listed = tokens_of(encoded, ended=False).tokens, encoded.text.split()
    for show in (Show(), Show(punctuation=False)):
        cells = [cell for cell in labels(encoded.text, tokens, show) if cell.text == rewrite(word).text]
        if cells:
            return [(at, cell.text) for cell in cells for at in cell.tokens]
    if not (word.isascii() and word.isdecimal() and int(word[:9]) < len(listed)):
        raise ConfigError(
            f"There is no word {label(word)!r} in the sentence; pass one of its {counted(len(listed), 'word')}, or its "
            "position, from 0."
        )
    return [(at, listed[int(word)]) for at, group in enumerate(encoded.words) if group == int(word)]
