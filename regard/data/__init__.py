"""Files into batches, in reading order:

settings      the [data] section; files: bytes into lines, whatever they are packed as
encoding      what a task gives: its examples (`Corpus`), and how they become ids (`Encoding`)
prepare       the one pipeline of all tasks: survey, vocabularies, a tokenised corpus on disk (store)
pairs         translation: corpus (files of pairs), tmx, links between words
documents     labelled documents; text_corpus: text for language models; captions, images: pictures
vocabulary    text into ids: subwords (SentencePiece), word_vocabulary, normalise_text
batching      batches of like length, in an order that follows from seed and epoch
formats       documents to translate: HTML, Markdown, PO, XLIFF, SRT; builtin: generated corpora
"""
