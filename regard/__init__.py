"""Train, run and look inside attention sequence-to-sequence models.

The public names are imported on first use, so that `import regard` is fast.
"""

import sys

if sys.argv[:1] == ["-m"] and {"regard", "-mregard"} & set(sys.orig_argv) and not sys.flags.safe_path:
    del sys.path[0]  # `python -m regard` puts the current folder first: its files must not replace modules

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.version import __version__ as __version__

if TYPE_CHECKING:
    from regard.api.corpus import translate_corpus as translate_corpus
    from regard.api.drafts import Translation as Translation
    from regard.api.loading import load as load
    from regard.api.sweeping import sweep as sweep
    from regard.api.training import train as train
    from regard.api.translator import Translator as Translator
    from regard.core.attend import Look as Look
    from regard.core.attend import Memory as Memory
    from regard.core.attend import attend as attend
    from regard.errors import RegardError as RegardError
    from regard.kernels.explain import explain as explain
    from regard.look.change import change as change
    from regard.look.record import record as record
    from regard.look.trace import Trace as Trace

_HOMES = {
    "load": "regard.api.loading",
    "translate_corpus": "regard.api.corpus",
    "train": "regard.api.training",
    "sweep": "regard.api.sweeping",
    "Translator": "regard.api.translator",
    "Translation": "regard.api.drafts",
    "attend": "regard.core.attend",
    "Memory": "regard.core.attend",
    "Look": "regard.core.attend",
    "record": "regard.look.record",
    "change": "regard.look.change",
    "Trace": "regard.look.trace",
    "RegardError": "regard.errors",
    "explain": "regard.kernels.explain",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
