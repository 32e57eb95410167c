"""The only list of models: a name, the paper, the class, its settings, presets and named variants.

Models of other packages join it by `register`, their scores and normalisers by an entry in the tables of `regard.core`.
"""

import os
from collections import UserDict
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from torch import nn

from regard.config import Settings, check
from regard.core.normalise import NORMALISERS
from regard.core.scores import COMPARISONS, SCORES
from regard.errors import ConfigError, check_known

IMPORTED = "REGARD_IMPORT"  # the environment variable that --import sets, so that every process of a server knows it


@dataclass(frozen=True)
class Entry:
    """A model, and what a person wants to know before choosing it."""

    model: type[nn.Module]
    config: type[Any]
    presets: Mapping[str, Any]  # "paper", "small" (minutes on a GPU), "tiny" (a minute on two CPU cores)
    paper: str
    idea: str
    variants: Mapping[str, Any]  # the named variants, at tiny size
    recipes: Mapping[str, Mapping[str, Any]]  # for each preset, the settings of training that go with it
    task: str = "translate"


# name -> its file in this folder, its class, what its PRESETS, VARIANTS and RECIPES are called before that, its task,
# paper and idea
_TABLE = {
    "cho": ("encdec", "Cho", "CHO_", "translate", "Cho et al. 2014",
     "GRU encoder-decoder; one vector of the source at every step"),
    "rnnencdec": ("encdec", "RNNencdec", "RNNENCDEC_", "translate", "Bahdanau et al. 2015, the baseline",
     "RNNsearch without attention: the context is always the last encoder state"),
    "sutskever": ("encdec", "Sutskever", "SUTSKEVER_", "translate", "Sutskever et al. 2014",
     "stacked LSTMs, reversed source; one vector of the source, once"),
    "bahdanau": ("bahdanau", "Bahdanau", "", "translate", "Bahdanau et al. 2015",
     "additive attention over a bidirectional GRU; the query is the state before the step"),
    "coverage": ("coverage", "Coverage", "", "translate", "Tu et al. 2016",
     "RNNsearch whose score reads how much each source word has been attended to so far"),
    "monotonic": ("monotonic", "Monotonic", "", "translate", "Raffel et al. 2017",
     "RNNsearch whose attention moves forward only: one word at test, the expectation in training"),
    "luong": ("luong", "Luong", "", "translate", "Luong et al. 2015",
     "global or local attention over stacked LSTMs; the query is the state after the step; input feeding"),
    "pointer": ("pointer", "Pointer", "", "translate", "See et al. 2017",
     "an LSTM encoder-decoder that writes a word or copies one that it attends to; coverage in its attention"),
    "britz": ("britz", "Britz", "", "translate", "Britz et al. 2017",
     "GRU or LSTM stacks of any depth and direction, residuals, multiplicative or additive attention after the step"),
    "transformer": ("transformer", "Transformer", "", "translate", "Vaswani et al. 2017",
     "self-attention and cross-attention with many heads, no recurrence"),
    "captioner": ("captioner", "Captioner", "", "caption", "Xu et al. 2015",
     "an LSTM with attention over the cells of a picture: all of them (soft) or one (hard)"),
    "lstmn": ("lstmn", "LSTMN", "", "translate", "Cheng et al. 2016",
     "LSTMs with attention over their past, in encoder and decoder; shallow or deep fusion"),
    "document": ("document", "DocumentClassifier", "", "classify", "Yang et al. 2016",
     "attention over the words of a sentence, then over the sentences of a document"),
    "lstmn-lm": ("lstmn", "LSTMNLanguageModel", "LANGUAGE_", "language", "Cheng et al. 2016",
     "a language model whose memory cell is attention over its past"),
    "attentive-lm": ("attentive_lm", "AttentiveLanguageModel", "", "language",
     "Salton et al. 2017, Daniluk et al. 2017", "an LSTM language model with attention over its past states"),
    "lstm-lm": ("lstm_lm", "LSTMLanguageModel", "", "language", "the baseline",
     "an LSTM language model without attention"),
    "transformer-lm": ("transformer_lm", "TransformerLanguageModel", "", "language",
     "Vaswani et al. 2017, the decoder alone", "a causal Transformer language model"),
}  # fmt: skip


def _entry(file: str, model: str, prefix: str, task: str, paper: str, idea: str) -> Entry:
    found = vars(import_module(f"regard.models.{file}"))
    presets, variants = found[f"{prefix}PRESETS"], found.get(f"{prefix}VARIANTS", {})
    return Entry(found[model], type(presets["paper"]), presets, paper, idea, variants, found[f"{prefix}RECIPES"], task)


class _Models(UserDict[str, Any]):
    """Name -> `Entry`; the file of a model is imported when its entry is first read, since a run needs one of them."""

    def __getitem__(self, name: str) -> Entry:
        found = self.data[name]
        if not isinstance(found, Entry):
            found = self.data[name] = _entry(*found)
        return found


MODELS = _Models(_TABLE)


def register(name: str, model: Entry) -> None:
    """Add a model of another package under a new name; it then trains, loads, translates and serves like the others.

    Call it when the package is imported: `regard --import my_package train --model mine ...` does so, and so does an
    entry point of the group `regard.models` with the name of the model and the module that registers it.
    """
    if name in MODELS and MODELS[name].model is not model.model:
        raise ConfigError(f"There is a model {name!r} already; register yours under another name.")
    MODELS[name] = model


def installed() -> dict[str, str]:
    """The models that installed packages offer as entry points, and the module that registers each."""
    return {point.name: point.module for point in entry_points(group="regard.models")}


def package_of(name: str, config: Any) -> str:
    """The package that a model, or else its score or normaliser, comes from where it is not regard; or nothing."""
    score, normaliser = getattr(config, "score", ""), getattr(config, "normaliser", "")
    parts = entry(name).model, SCORES.get(score), COMPARISONS.get(score), NORMALISERS.get(normaliser)
    return next((one for one in map(_package, parts) if one != "regard"), "")


def _package(part: Any) -> str:
    return str(getattr(part, "__module__", None) or "regard").partition(".")[0]


def known_packages() -> set[str]:
    """The packages that the models, scores and normalisers of this process come from."""
    models = [one.model for one in MODELS.data.values() if isinstance(one, Entry)]
    return set(map(_package, [*models, *SCORES.values(), *COMPARISONS.values(), *NORMALISERS.values()]))


def entry(name: str, package: str = "") -> Entry:
    """The entry of a model's name; `package` is what a run says that it needs.

    What is not known is looked for in the packages of `--import` and among the entry points of installed packages.
    Nothing else is imported: a run folder cannot make regard run code.
    """

    def complete() -> bool:
        return name in MODELS and (not package or package in known_packages())

    offered = installed() if not complete() else {}
    for module in filter(None, os.environ.get(IMPORTED, "").split(",")):
        if not complete():
            import_package(module)
    for point, module in offered.items():
        if not complete() and (point == name or module.partition(".")[0] == package):
            import_package(module)
    if package and not complete():
        what = "The attention of this run" if name in MODELS else f"The model {name!r}"
        raise ConfigError(
            f"{what} comes from the package {package!r}, which is not loaded: install it, or pass --import {package} "
            f"before the command."
        )
    check_known("model", name, MODELS)
    return MODELS[name]


def import_package(module: str) -> None:
    """Import a package that registers models."""
    try:
        import_module(module)
    except ImportError as error:
        raise ConfigError(f"The package {module!r} cannot be imported: {error}.") from None


def preset(name: str, size: str = "paper") -> Any:
    """The settings of a model at a named size."""
    presets = entry(name).presets
    check_known("preset", size, presets, f" of {name}")
    return presets[size]


def build(name: str, config: Any) -> nn.Module:
    """A fresh model from its name and settings; raises ConfigError for invalid settings."""
    found = entry(name)
    if not isinstance(config, found.config):
        raise ConfigError(
            f"The model {name} takes a {found.config.__name__}; got a {type(config).__name__}. "
            f"Start from preset({name!r}, 'tiny')."
        )
    if not isinstance(config, Settings):  # a plain dataclass of another package
        check(config, "model")
    return found.model(config)
