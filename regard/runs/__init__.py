"""What a run is, without training it:

experiment    all settings of a run, from tables, presets and recipes; settings: the [train] section
folder        the files of a run: manifest, settings, checkpoints, the finished model; cursor: progress in a checkpoint
weights       the weights of a model by name, and models built around them; int8: small weights to share
expects       the input that a translator expects
included      the translators that come with regard
"""
