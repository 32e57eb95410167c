"""Train, run and look inside attention sequence-to-sequence models.

The names below are loaded when they are first used, so that `import regard` stays quick.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from regard.version import __version__ as __version__

if TYPE_CHECKING:
    from regard.api.loading import load
    from regard.api.training import train
    from regard.api.translator import Translation, Translator
    from regard.core.attend import Look, Memory, attend
    from regard.errors import RegardError
    from regard.look.change import change
    from regard.look.record import record
    from regard.look.trace import Trace

_HOMES = {
    "load": "regard.api.loading",
    "Translator": "regard.api.translator",
    "Translation": "regard.api.translator",
    "attend": "regard.core.attend",
    "Memory": "regard.core.attend",
    "Look": "regard.core.attend",
    "record": "regard.look.record",
    "change": "regard.look.change",
    "Trace": "regard.look.trace",
    "RegardError": "regard.errors",
}
__all__ = [
    "Look",
    "Memory",
    "RegardError",
    "Trace",
    "Translation",
    "Translator",
    "attend",
    "change",
    "load",
    "record",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "train"])


class _Regard(ModuleType):
    """`regard.train` is the function, though a package of that name exists: importing it must not take its place."""

    @property
    def train(self) -> Any:
        return import_module("regard.api.training").train

    @train.setter
    def train(self, package: ModuleType) -> None:
        pass  # the import system calls this; `from regard.train.loop import Loop` needs no such name


sys.modules[__name__].__class__ = _Regard
