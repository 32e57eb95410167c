"""What the server of commands.py imports before it forks: whatever commands import, so that none of them has to.

Searching for garbage would take a fifth of that time; what is imported stays, so that no fork looks at it, either.
"""

import gc
from importlib import import_module

NAMES = [
    "regard.__main__", "regard.cli.progress", "regard.api.aligning", "regard.api.measuring", "regard.api.training",
    "regard.look.draw.still", "matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "typer._adapters",
    "sacrebleu.tokenizers.tokenizer_13a", "torch._dynamo", "regard.serve.app",
    "regard.serve.server", "regard.serve.models", "regard.serve.captions", "httpx", "regard.api.corpus",
    "regard.api.exporting", "regard.api.sweeping",
    "commands", "faults", "serve_parts", "small", "trained", "pytest",  # and what the files of tests import
]  # fmt: skip

gc.disable()
for name in NAMES:
    import_module(name)
import_module("typer.main").get_command(import_module("regard.cli").app)  # which commands.py keeps
gc.freeze()
gc.enable()
