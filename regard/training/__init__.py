"""The training loop and its parts, in reading order:

start         from settings, or another run, to a trained run: the folder, the data, the model, the loop
loop          epochs, updates, validations and checkpoints
update        one update: gradients, clipping, the optimiser's step (with optimisers, schedules, objectives)
task          the interface of a task: translation, captioning (caption_data), documents, language
clock         the time that training takes
checkpoints   model, optimiser and cursor to disk and back
events        what an observer receives; notices: messages for the user
distributed   several processes; stopping: SIGTERM and Ctrl-C
"""
