"""One paper, one file. `contract` says what every model has in common, `registry` lists them.

encdec        Cho, Sutskever: one vector of the source       luong         attention after the step, local attention
bahdanau      the first attention; on it:                    transformer   self-attention, no recurrence
coverage      what was attended to before                    captioner     attention over a picture
monotonic     attention that only moves forward              document      attention over words, then sentences
pointer       copies words                                   lstmn         attention over its own past
britz         cell, depth, direction and residuals of an attentional encoder-decoder as settings

Language models: lstm_lm (without attention), attentive_lm, transformer_lm; in lstmn too.
"""
