"""The four symbols that every vocabulary begins with, so that every model and search agrees on them."""

PAD = 0  # fills a row after its end; never attended to, never predicted
START = 1  # y_0: what the decoder reads before the first word
END = 2  # ends a sentence; a real token: it is read, attended to and predicted
UNKNOWN = 3  # replaces a word that is not in the vocabulary

SYMBOLS = ("<pad>", "<s>", "</s>", "<unk>")
