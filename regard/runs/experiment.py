"""All settings of a run: read from TOML tables, completed by the preset and recipe of the model, and written back."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from regard.config import read, to_toml
from regard.data.settings import CaptionConfig, DataConfig, DocumentDataConfig, TextDataConfig
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, check_known
from regard.models.registry import MODELS, entry, package_of, preset
from regard.runs.settings import TrainConfig

SECTIONS = ("data", "model", "train", "decode")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """All settings of a run."""

    task: str
    name: str  # of the model, as in the registry
    preset: str
    model: Any  # the model's own settings
    data: Any
    train: TrainConfig
    decode: DecodeConfig

    def tables(self) -> dict[str, dict[str, Any]]:
        """Plain tables with every setting."""
        package = package_of(self.name, self.model)
        origin = {"package": package} if package else {}  # what must be imported to load the run
        model = {"name": self.name, **origin, "preset": self.preset, **dataclasses.asdict(self.model)}
        parts = {"data": self.data, "train": self.train, "decode": self.decode}
        return {"model": model, **{name: dataclasses.asdict(part) for name, part in parts.items()}}

    def toml(self) -> str:
        """The text of config.toml."""
        return f'task = "{self.task}"\n\n' + to_toml(self.tables())


DATA: dict[str, type[Any]] = {  # task -> its [data] settings
    "translate": DataConfig,
    "caption": CaptionConfig,
    "classify": DocumentDataConfig,
    "language": TextDataConfig,
}
READS = {  # task -> what its models are trained on instead of sentence pairs
    "caption": "pictures with captions: data.images=FOLDER with NAME.txt next to NAME.jpg, or --corpus shapes",
    "classify": "labelled documents: data.files=FILE.tsv with label, tab, text on each line, or --corpus reviews",
    "language": "text: data.files=FILE.txt, or --corpus tales",
}


def check_tables(tables: Mapping[str, Any]) -> None:
    """Refuse an unknown section, and one that is not a table."""
    for name, table in tables.items():
        check_known("section", name, (*SECTIONS, "task"), " of settings")
        if name in SECTIONS and not isinstance(table, Mapping):
            raise ConfigError(f"[{name}] must be a table of settings; got {name} = {table!r}.")


def resolve(tables: Mapping[str, Any]) -> Experiment:
    """Settings from tables, over the model's preset and recipe, over the defaults."""
    check_tables(tables)
    model = dict(tables.get("model", {}))
    if "name" not in model:
        raise ConfigError(
            f"No model is set: set model.name (or --model) to one of: {', '.join(MODELS)}; or pass --minutes, which "
            f"chooses a translator."
        )
    name, size = str(model.pop("name")), str(model.pop("preset", "small"))
    found = entry(name, str(model.pop("package", "")))
    task = tables.get("task", found.task)
    if task != found.task:
        raise ConfigError(f"The model {name} is for the task {found.task!r}; got task = {task!r}. Leave it out.")
    corpus = tables.get("data", {})
    for side in [side for side in ("source", "target", "tmx") if side in corpus and task in READS]:
        raise ConfigError(f"{name} is trained on {READS[task]}; leave data.{side} out.")
    recipe = {**found.recipes.get(size, {}), **tables.get("train", {})}
    data, train = read(DATA[task], corpus, "data"), read(TrainConfig, recipe, "train")
    if train.guided and not getattr(data, "alignment", ""):
        raise ConfigError(
            "train.guided needs word links: set data.alignment to a file of links i-j, or to gold for a built-in "
            "corpus of translations; or set train.guided=0."
        )
    if train.coverage and task != "translate":
        raise ConfigError(f"train.coverage is for translation; the task is {task}. Leave it out.")
    if train.consistency and task not in ("translate", "classify"):
        raise ConfigError(f"train.consistency is for translation and documents; the task is {task}. Leave it out.")
    chosen = read(found.config, model, "model", over=preset(name, size))
    if task == "translate" and getattr(chosen, "tied", "") == "all":
        if corpus.get("joint") is False:
            raise ConfigError(
                "model.tied = 'all' shares one matrix between both languages, which needs a joint vocabulary: leave "
                "data.joint out or set it to true, or set model.tied to 'target'."
            )
        data = dataclasses.replace(data, joint=True)
    decode = read(DecodeConfig, tables.get("decode", {}), "decode")
    return Experiment(task, name, size, chosen, data, train, decode)
