"""All settings of a run: read from TOML tables, completed by the preset and recipe of the model, written back whole."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from regard.config import read, to_toml
from regard.data.captions import CaptionConfig
from regard.data.documents import DocumentDataConfig, prepare_documents
from regard.data.lines import TextDataConfig, prepare_text
from regard.data.prepare import Stages, prepare
from regard.data.settings import DataConfig
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, unknown
from regard.models.registry import MODELS, check_sizes, entry, preset
from regard.train.albums import prepare_captions
from regard.train.captioning import Captioning
from regard.train.documents import Documents, document_sizes
from regard.train.language import Language, text_sizes
from regard.train.settings import TrainConfig
from regard.train.task import Task
from regard.train.translation import Translation, vocabulary_sizes

SECTIONS = ("data", "model", "train", "decode")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Everything that makes a run what it is."""

    task: str
    name: str  # of the model, as in the registry
    preset: str
    model: Any  # the model's own settings
    data: Any
    train: TrainConfig
    decode: DecodeConfig

    def tables(self) -> dict[str, dict[str, Any]]:
        """Plain tables, every setting spelled out."""
        model = {"name": self.name, "preset": self.preset, **dataclasses.asdict(self.model)}
        parts = {"data": self.data, "train": self.train, "decode": self.decode}
        return {"model": model, **{name: dataclasses.asdict(part) for name, part in parts.items()}}

    def toml(self) -> str:
        """The text of config.toml."""
        return f'task = "{self.task}"\n\n' + to_toml(self.tables())


class Opened(NamedTuple):
    """A task with its data read, and the settings of the model that the data decides."""

    task: Task
    sizes: Mapping[str, int]
    notes: list[str]  # what a person should know of the data: how many pairs, what was dropped
    ready: Callable[[nn.Module], None] = lambda model: None  # gives a fresh model what is not learned here


class Kind(NamedTuple):
    """A kind of task: its [data] settings, and how its data is opened."""

    data: type[Any]
    open: Callable[[Experiment, Path, Stages | None], Opened]


def open_translation(experiment: Experiment, run: Path, stages: Stages | None) -> Opened:
    """Read the corpus, make or load the vocabularies, tokenise."""
    data = prepare(experiment.data, run, stages)
    notes = [f"corpus: {data.report}"] + ([f"validation: {data.dev_report}"] if data.dev_report else [])
    notes.append(f"vocabulary: {len(data.source_vocabulary)} source, {len(data.target_vocabulary)} target")
    task = Translation(data, experiment.train, experiment.decode, run)
    return Opened(task, vocabulary_sizes(data), notes, task.ready)


def open_captions(experiment: Experiment, run: Path, stages: Stages | None) -> Opened:
    """Read or draw the pictures, make or load the vocabulary, compute or open the features."""
    data = prepare_captions(experiment.data, experiment.model, run, stages)
    notes = [f"captions: {data.report}", f"vocabulary: {len(data.vocabulary)}"]
    task = Captioning(data, experiment.train, experiment.decode, run)
    return Opened(task, {"target_vocabulary": len(data.vocabulary)}, notes, task.ready)


def open_documents(experiment: Experiment, run: Path, stages: Stages | None) -> Opened:
    """Read the documents, split them into sentences, count their words."""
    data = prepare_documents(experiment.data, run)
    return Opened(Documents(data, experiment.train, run), document_sizes(data), data.notes)


def open_text(experiment: Experiment, run: Path, stages: Stages | None) -> Opened:
    """Read the text, make or load its vocabulary, tokenise."""
    data = prepare_text(experiment.data, run)
    return Opened(Language(data, experiment.train, experiment.decode, run), text_sizes(data), data.notes)


KINDS: dict[str, Kind] = {
    "translate": Kind(DataConfig, open_translation),
    "caption": Kind(CaptionConfig, open_captions),
    "classify": Kind(DocumentDataConfig, open_documents),
    "language": Kind(TextDataConfig, open_text),
}


def check_tables(tables: Mapping[str, Any]) -> None:
    """Refuse a section that does not exist, and one that is not a table."""
    for name, table in tables.items():
        if name not in (*SECTIONS, "task"):
            raise ConfigError(unknown("section of settings", name, [*SECTIONS, "task"]))
        if name in SECTIONS and not isinstance(table, Mapping):
            raise ConfigError(f"[{name}] must be a table of settings; got {name} = {table!r}.")


def resolve(tables: Mapping[str, Any]) -> Experiment:
    """Settings from tables: the defaults, then the model's preset and recipe, then what the tables say."""
    check_tables(tables)
    model = dict(tables.get("model", {}))
    if "name" not in model:
        raise ConfigError(f"Which model? Set model.name (or --model) to one of: {', '.join(MODELS)}.")
    name, size = str(model.pop("name")), str(model.pop("preset", "small"))
    found = entry(name)
    task = tables.get("task", found.task)
    if task != found.task:
        raise ConfigError(f"The model {name} is for the task {found.task!r}; got task = {task!r}. Leave it out.")
    recipe = {**found.recipes.get(size, {}), **tables.get("train", {})}
    data, train = read(KINDS[task].data, tables.get("data", {}), "data"), read(TrainConfig, recipe, "train")
    if train.guided and not getattr(data, "alignment", ""):
        raise ConfigError(
            "train.guided needs word links to guide attention by: set data.alignment to a file of links i-j, or to "
            "gold for a built-in corpus of translations; or set train.guided=0."
        )
    chosen = read(found.config, model, "model", over=preset(name, size))
    check_sizes(chosen)  # now, and not when a large corpus has been read
    if task == "translate" and getattr(chosen, "tied", "") == "all":
        if tables.get("data", {}).get("joint") is False:
            raise ConfigError(
                "model.tied = 'all' makes one matrix of both languages, which needs one vocabulary: leave data.joint "
                "out or set it to true, or set model.tied to 'target'."
            )
        data = dataclasses.replace(data, joint=True)
    return Experiment(
        task=task,
        name=name,
        preset=size,
        model=chosen,
        data=data,
        train=train,
        decode=read(DecodeConfig, tables.get("decode", {}), "decode"),
    )
