"""`regard import`: convert a translator of another toolkit into a run."""

import re
from pathlib import Path
from typing import Any

from regard.data.settings import check_codes
from regard.errors import ConfigError, DataError, RegardError, brief
from regard.interop import firefox, hub
from regard.interop.huggingface import read_huggingface
from regard.interop.imported import write_run
from regard.interop.marian import read_marian
from regard.runs.int8 import check_new
from regard.work import Progress

_PAIR = re.compile(r".*(?:^|[._/-])([a-z]{2,3})-([a-z]{2,3})(?:[._/-]|$)")  # the last in opus-mt-en-de
_FIREFOX = re.compile(r"(?:^|/)model\.([a-z]{2})([a-z]{2})\.")  # model.ende.intgemm.alphas.bin


_HUB = re.compile(r"[\w-][\w.-]*/[\w.-]+(@[\w./-]+)?")  # Helsinki-NLP/opus-mt-en-de


def import_model(
    model: str | Path,
    out: str | Path,
    source_language: str = "",
    target_language: str = "",
    *,
    mirror: str = "",
    progress: Progress | None = None,
) -> int:
    """Write a model as the new run `out`; returns the size in bytes.

    `model` is a folder with a MarianMT model of transformers (config.json), or a model of Marian or Bergamot (.npz or
    .bin, and .spm); or the name of a MarianMT model on the Hugging Face Hub, OWNER/MODEL; or firefox:en-de for a model
    of Firefox. A revision or version may follow a name, as in firefox:en-de@1.0; what was downloaded is written into
    the manifest. `mirror` is the address of another server, and `progress` is called with downloaded bytes. Languages
    that are not given are taken from the registry, or from the names of the folder and its files.
    """
    name, out, given = str(model), Path(out), (source_language, target_language)
    check_codes({"source_language": source_language, "target_language": target_language})
    check_new(out)  # before a download
    if name.startswith("firefox:"):
        with firefox.download(name.removeprefix("firefox:"), out, mirror, progress) as (found, folder):
            origin = {"from": f"firefox:{found.source}-{found.target}", "release": found.version}
            files = {file: one.sha256 for file, one in found.files.items()}
            known = source_language or found.source, target_language or found.target
            return _convert(folder, out, known, {**origin, "architecture": found.architecture, "sha256": files})
    if Path(name).is_dir() or not _HUB.fullmatch(name):
        if mirror:
            raise ConfigError("A mirror is for models by name, such as firefox:en-de; got a folder.")
        return _convert(Path(name), out, given, {})
    folder, revision = hub.fetch(name, mirror, progress)
    return _convert(folder, out, given, {"from": name.partition("@")[0], "revision": revision})


def _convert(folder: Path, out: Path, languages: tuple[str, str], origin: dict[str, Any]) -> int:
    """Write the model in `folder` as a run with these facts about its origin."""
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder; give the folder that holds the files of one model, or a name such as "
            f"Helsinki-NLP/opus-mt-en-de or firefox:en-de."
        )
    try:
        imported = (read_huggingface if (folder / "config.json").is_file() else read_marian)(folder)
    except RegardError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:  # arrays of other shapes
        raise DataError(f"{folder} cannot be imported; its parts do not fit together: {brief(error)}.") from None
    origin = {**imported.origin, **origin}
    named = f"{folder.resolve().name}/{origin['from']}"  # may mention a pair, as `opus-mt-en-de` does
    pair = _FIREFOX.search(named) or _PAIR.match(named)
    guessed = pair.groups() if pair else ("", "")
    sides = zip(("source_language", "target_language"), languages, guessed, strict=True)
    data = {side: chosen or imported.data.get(side) or guess for side, chosen, guess in sides}
    return write_run(imported._replace(data={**imported.data, **data}, origin=origin), out)
