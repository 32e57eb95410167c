"""Word vectors trained elsewhere, in word2vec's text form: a word and its numbers on each line, separated by spaces."""

import numpy as np
from numpy.typing import NDArray

from regard.data.files import is_blank, read_lines
from regard.data.settings import READING, Reading
from regard.data.vocabulary import Vocabulary
from regard.errors import DataError
from regard.symbols import UNKNOWN


def read_vectors(
    path: str, vocabulary: Vocabulary, width: int, reading: Reading = READING
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The ids [N] of the words of a vocabulary that the file has, and their vectors [N, width].

    A first line of two numbers, how many words and how wide, is word2vec's and left out, and so are blank lines and, as
    GloVe has them, words with spaces. Of a word that comes twice the first vector counts.
    """
    found: dict[int, list[float]] = {}
    fits = False  # whether a line of the right width was there
    for number, line in enumerate(read_lines(path, reading), start=1):
        word, *texts = line.rstrip(" \r").split(" ")
        if is_blank(line) or (number == 1 and len(texts) == 1):
            continue
        if fits and len(texts) > width:
            continue
        fits = len(texts) == width
        if not fits:
            raise DataError(
                f"{path}, line {number}: a vector of model.embedding = {width} numbers was expected; got {len(texts)}."
            )
        ids = vocabulary.encode(word).ids
        if len(ids) != 1 or ids[0] == UNKNOWN or ids[0] in found:
            continue
        try:
            found[ids[0]] = [float(text) for text in texts]
        except ValueError:
            raise DataError(f"{path}, line {number}: {word[:40]!r} is followed by what is no number.") from None
    if not found:
        raise DataError(f"{path} has a vector for no word of the vocabulary; is it of the same language and case?")
    vectors = np.array([*found.values()], np.float32)  # [N, width]
    if not np.isfinite(vectors).all():
        raise DataError(f"{path} has vectors with numbers that are not finite; train them again.")
    return np.array([*found], np.int64), vectors
