"""The training loop and its parts, in reading order:

experiment    all settings of a run, from tables, presets and recipes
start         from settings, or another run, to a trained run: the folder, the data, the model, the loop
loop          epochs, updates, validations and checkpoints
update        one update: gradients, clipping, the optimiser's step (with optimisers, schedules, objectives)
task          the interface of a task: translation, captioning (albums), documents, language
cursor        the progress in a checkpoint; clock: the time that training takes
checkpoints   model, optimiser and cursor to disk and back; runs: the files of a run folder
events        what an observer receives; notices: messages for the user
distributed   several processes; stopping: SIGTERM and Ctrl-C; locks: one process in a folder
known         the included models; small: int8 weights to share
"""
