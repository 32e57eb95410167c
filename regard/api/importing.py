"""`regard import`: convert a translator of another toolkit into a run."""

import re
from pathlib import Path

from regard.data.settings import check_codes
from regard.errors import DataError, RegardError, brief
from regard.interop.huggingface import read_huggingface
from regard.interop.imported import write_run
from regard.interop.marian import read_marian

_PAIR = re.compile(r".*(?:^|[._/-])([a-z]{2,3})-([a-z]{2,3})(?:[._/-]|$)")  # the last in opus-mt-en-de
_FIREFOX = re.compile(r"(?:^|/)model\.([a-z]{2})([a-z]{2})\.")  # model.ende.intgemm.alphas.bin


def import_model(folder: str | Path, out: str | Path, source_language: str = "", target_language: str = "") -> int:
    """Write the model in `folder` as the new run `out`; returns the size in bytes.

    `folder` holds a MarianMT model of transformers (config.json), or a model of Marian or Bergamot (.npz or .bin, and
    .spm). Languages that are not given are taken from the names of the folder and its files, if these contain them.
    """
    folder = Path(folder)
    check_codes({"source_language": source_language, "target_language": target_language})
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder that holds the files of one model.")
    try:
        imported = (read_huggingface if (folder / "config.json").is_file() else read_marian)(folder)
    except RegardError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:  # arrays of other shapes
        raise DataError(f"{folder} cannot be imported; its parts do not fit together: {brief(error)}.") from None
    named = f"{folder.resolve().name}/{imported.origin['from']}"  # may mention a pair, as `opus-mt-en-de` does
    pair = _FIREFOX.search(named) or _PAIR.match(named)
    guessed = pair.groups() if pair else ("", "")
    known = imported.data.get("source_language") or guessed[0], imported.data.get("target_language") or guessed[1]
    data = {"source_language": source_language or known[0], "target_language": target_language or known[1]}
    return write_run(imported._replace(data={**imported.data, **data}), Path(out))
