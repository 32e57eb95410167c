"""Corpora into batches, in reading order:

settings      the [data] section
encoding      what a task defines: its examples (`Corpus`), and how they become ids (`Encoding`)
prepare       the pipeline of all tasks: survey, vocabularies, a tokenised corpus on disk (store)
pairs         translation: corpus (files of pairs), tmx, word links
documents     labelled documents; text_corpus: text for language models; captions, images: pictures
vocabulary    text into ids: subwords (SentencePiece), word_vocabulary
batching      batches of similar length, in an order that depends on seed and epoch only
"""
