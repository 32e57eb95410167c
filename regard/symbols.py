"""The four symbols that every vocabulary begins with, so that every model and search agrees on them."""

PAD = 0  # fills a row after its end; never looked at, never predicted
START = 1  # y_0: what the decoder reads before the first word
END = 2  # ends a sentence; a real token: it is read, looked at and predicted
UNKNOWN = 3  # stands for a word that the vocabulary does not hold

SYMBOLS = ("<pad>", "<s>", "</s>", "<unk>")
