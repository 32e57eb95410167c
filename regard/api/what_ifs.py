"""What-ifs given as text: a head by its place, a source word by its spelling."""

import re

from regard.api.tracing import tokens_of
from regard.api.translator import Translator, clean
from regard.errors import ConfigError, counted, numbered
from regard.look.change import Mask, Silence, find
from regard.look.table import Show, labels
from regard.look.text import label


def silence(translator: Translator, place: str) -> Silence:
    """The what-if that silences LAYER.HEAD or LAYER of the attention over the source, from 0, or a module by name."""
    cross = find(translator.model, None)
    numbers = re.fullmatch(r"([0-9]{1,4})(?:\.([0-9]{1,4}))?", place)
    if numbers is None:
        return Silence(place)
    layer, head = int(numbers[1]), None if numbers[2] is None else int(numbers[2])
    if layer >= len(cross):
        have = numbered("layer", len(cross))
        raise ConfigError(f"There is no layer {layer} of attention over the source; this model has {have}.")
    return Silence(cross[layer], head)


def mask_word(translator: Translator, source: str, word: str) -> list[Mask]:
    """Mask all pieces of a source word, given by its text (every occurrence) or by its position from 0.

    A word is what a picture shows in one cell ("1992" of "1992.") or the text between two spaces ("1992.").
    """
    encoded = translator.encode(source)
    tokens = tokens_of(encoded, ended=False).tokens
    listed = encoded.text.split()
    for show in (Show(), Show(punctuation=False)):
        cells = [cell for cell in labels(encoded.text, tokens, show) if cell.text == clean(word)]
        if cells:
            return [Mask(at, word=cell.text) for cell in cells for at in cell.tokens]
    if not (word.isascii() and word.isdecimal() and int(word[:9]) < len(listed)):
        raise ConfigError(
            f"There is no word {label(word)!r} in the sentence; pass one of its {counted(len(listed), 'word')}, or its "
            "position, from 0."
        )
    return [Mask(at, word=listed[int(word)]) for at, group in enumerate(encoded.words) if group == int(word)]
