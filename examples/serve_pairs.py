"""Serve several pairs of languages: python examples/serve_pairs.py [RUN ...]

Each RUN is a run folder or the name of a model that ships; requests choose by their languages, or by the field `model`.
The page is at the address that is printed, `GET /languages` lists the pairs. Stop it with Ctrl-C.
"""

import sys

from regard import serve

if __name__ == "__main__":  # the processes of the models import this file
    runs = sys.argv[1:] or ["en-fr", "en-fr/bahdanau", "fr-en"]
    serve.run(runs, port=0, ready=lambda address: print(address, flush=True))
