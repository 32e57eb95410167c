"""File formats of translators: each splits a file into text that stays and segments to translate, and writes it back.

A format is one function, `read(text)`, that yields the parts of a text in order: strings that stay, and segments.
The parts of an untranslated text are that text.
"""
