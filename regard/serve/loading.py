"""What the process of a model runs: it loads the run and calls the methods of the model. The reader has one too."""

import gzip
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import RegardError, RunError
from regard.processes import Answer, Running
from regard.serve.limits import FAULT, Limits, OncePerMinute, RefusedError, StoppedError
from regard.serve.queue import GZIP, MethodCall

log = logging.getLogger("regard.serve")
# Imported once for all models and the reader.
PRELOAD = ("regard.serve.models", "regard.serve.captions", "regard.serve.layout", "regard.api.exporting")
NICE = 5  # models run at a lower priority than the server, whose tasks are short and block every client


def load_service(load: Callable[[], Any]) -> Answer:
    """Load a model in its process; returns the function that calls its methods."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the server decides when its models end
    if sys.platform != "win32":
        os.nice(NICE)
    logging.basicConfig(level=logging.WARNING)
    log.addFilter(OncePerMinute())
    model = load()

    def answer(running: Running | None, call: MethodCall) -> Any:
        try:
            found = getattr(model, call.method)(*call.args, *([running] if running else []))
            if not call.written:
                return found
            text = model.write(found)
            return gzip.compress(text, GZIP, mtime=0) if call.compressed else text
        except (RefusedError, StoppedError):
            raise
        except MemoryError:
            raise RefusedError(503, "There is not enough memory for this request.") from None
        except RegardError as error:
            raise RefusedError(422, str(error)) from None
        except Exception:
            log.exception("The model %s failed", model.id)
            raise FAULT.with_traceback(None) from None

    return answer


def load_model(run: str, limits: Limits, engine: str = "regard", threads: int = 1) -> Any:
    """Load a translator or a captioner that uses at most this many threads."""
    # Imported in this process only: the server itself does not need torch, so it starts quickly and stays small.
    import torch

    import regard
    from regard.api.captioner import CaptionWriter
    from regard.api.exporting import read_card
    from regard.api.translator import Translator
    from regard.serve.captions import CaptionModel
    from regard.serve.models import TranslationModel

    torch.set_num_threads(min(threads, torch.get_num_threads()))
    loaded = regard.load(run, engine=engine)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", loaded.name) or "model"
    if isinstance(loaded, Translator):
        return TranslationModel(loaded, name, limits, read_card(Path(run)))
    if isinstance(loaded, CaptionWriter):
        return CaptionModel(loaded, name)
    raise RunError(
        f"{run} is a run of the task {loaded.experiment.task!r}; only translators and captioners can be served."
    )
