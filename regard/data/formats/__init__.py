"""Files of the trade: each format cuts a file into what stays and what is translated, and writes it back.

A format is one function, `read(text)`, that gives the parts of a text in order: text that stays, and segments. The
parts of a document with what each segment `held` are the document.
"""
