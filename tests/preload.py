"""What the server of commands.py imports before it forks: whatever commands import, so that none of them has to.

Searching for garbage would take a fifth of that time; what is imported stays, so that no fork looks at it, either.
"""

import gc
from importlib import import_module

NAMES = [
    "regard.__main__", "regard.cli.progress", "regard.api.aligning", "regard.api.inspecting", "regard.api.training",
    "regard.look.draw.still", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "typer._adapters",
    "sacrebleu.tokenizers.tokenizer_13a", "torch._dynamo", "regard.serve.process", "regard.serve.models",
    "regard.serve.captions", "httpx", "regard.api.corpus", "regard.api.exporting", "regard.api.sweeping",
    "commands", "faults", "serve_parts", "small", "trained", "pytest",  # and what the files of tests import
]  # fmt: skip

gc.disable()
for name in NAMES:
    import_module(name)
# What each process would else make at its first use: the readers of all options, and the code that oneDNN writes for an
# LSTM that is trained. It is not trained here, since a first backward pass may start threads, which no fork has.
app = import_module("typer.main").get_command(import_module("regard.cli").app)  # which commands.py keeps
for command in (app, *app.commands.values()):
    for parameter in command.params:
        parameter.get_runtime_param()
torch = import_module("torch")
torch.nn.LSTM(2, 3)(torch.zeros(1, 1, 2))
gc.freeze()
gc.enable()
