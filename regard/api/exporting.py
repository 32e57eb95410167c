"""`regard export`: a run in a format for sharing, or for another engine."""

import json
from pathlib import Path
from typing import Any

from regard.api.loading import load, read_experiment
from regard.data.vocabulary import Vocabulary
from regard.errors import RunError, check_known
from regard.interop.ctranslate2 import export_ctranslate2
from regard.interop.huggingface import export_huggingface
from regard.interop.onnx import export_onnx
from regard.models.contract import attentions_to_source
from regard.runs.expects import expectations
from regard.runs.folder import belongings, checkpoints, digest_of_weights, find_weights, read_cursor, read_manifest
from regard.runs.included import find_run
from regard.runs.int8 import check_new, export_small
from regard.sealed import read_small

FORMATS = {
    "small": "a run folder with int8 weights and without corpus and checkpoints, for every regard command",
    "ctranslate2": "a folder for CTranslate2, int8 unless `numbers` is float32; Transformers only",
    "onnx": "an encoder and a step for any ONNX runtime, with the vocabularies; translators only",
    "huggingface": "a MarianMT folder that transformers loads, with a model card; post-norm Transformers only",
}
_KEPT = ("steps", "best", "start_from", "seconds", "device", "expects", "imported")  # of the run's own manifest


def export(run: str | Path, out: str | Path, to: str = "small", numbers: str = "int8") -> int:
    """Write a run in the format `to` into the new folder `out`; returns the size in bytes.

    Other engines return the attention of the aligning head, if the run names one (see `regard align`).
    """
    run, out = find_run(run), Path(out)
    check_known("format", to, FORMATS, " to export to")
    if to == "small":
        return export_small(run, out, about_run(run))
    check_new(out)
    translator = load(run, "cpu", "translate")
    if to == "huggingface":
        vocabularies = translator.source_vocabulary, translator.target_vocabulary
        languages, decode = (translator.source_language, translator.target_language), translator.experiment.decode
        card = write_card(translator, read_card(run))
        return export_huggingface(translator.model, vocabularies, out, decode, languages, card)
    heads = translator.heads
    names = attentions_to_source(translator.model)
    layer = max(0, len(names) - 2) if heads.layer is None else heads.layer
    if to == "ctranslate2":
        vocabularies = translator.source_vocabulary, translator.target_vocabulary
        return export_ctranslate2(translator.model, *vocabularies, out, numbers, (layer, heads.head or 0))
    files = {name: (run / name).read_bytes() for name in belongings(find_weights(run))}
    return export_onnx(translator.model, out, files, names[layer])


def write_card(translator: Any, card: dict[str, Any]) -> str:
    """The model card of an exported translator in Markdown, as the Hub shows it; `card` is that of an included one."""
    codes = [code for code in (translator.source_language, translator.target_language) if code]
    decode, expects = (
        translator.experiment.decode,
        expectations(translator.experiment.data, translator.source_vocabulary),
    )
    penalty = f"length^{decode.length_penalty:g}"
    if decode.length_offset:
        own = f"(({decode.length_offset:g} + length) / {decode.length_offset + 1:g})^{decode.length_penalty:g}"
        penalty += f", where regard divides by {own}: beams may differ, greedy search does not"
    lines = [
        "---", "library_name: transformers", "pipeline_tag: translation", "tags: [marian, translation]",
        *([f"language: {json.dumps(codes)}"] if codes else []), "---", "",
        f"# {translator.name}", "",
        f"A translator{f' from {codes[0]} to {codes[1]}' if len(codes) == 2 else ''} with {translator.size:,} "
        "parameters, exported by regard as a MarianMT model of transformers.", "",
        "```python", "from transformers import MarianMTModel, MarianTokenizer", "",
        'tokenizer, model = (one.from_pretrained("FOLDER") for one in (MarianTokenizer, MarianMTModel))',
        'found = model.generate(**tokenizer(["A sentence."], return_tensors="pt"))',
        "print(tokenizer.batch_decode(found, skip_special_tokens=True))", "```", "",
        f"- Training data: {card.get('data') or expects['corpus'] or 'not stated'}",
        f"- Licence: {card.get('licence') or 'not stated; add one before you share the model'}",
        f"- Input: sentences of at most {expects['longest']} tokens; longer texts must be split.",
        *(["- Input: lower case."] if expects["case"] == "lower" else []),
        *([f"- Input: text in the form {expects['form']} of regard."] if expects["form"] != "none" else []),
        f"- Beam search divides the log-probability by {penalty}.",
        *(f"- BLEU on {one['name']}: {one['small']['bleu']:.2f}" for one in card.get("scores", [])), "",
    ]  # fmt: skip
    return "\n".join(lines)


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a model, or an empty dict; a card that belongs to other weights is refused."""
    path = folder / "card.json"
    if not path.exists():
        return {}
    try:
        card = json.loads(read_small(path))
        weights = str(card["weights"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({type(error).__name__}); restore it from a copy.") from None
    if weights != digest_of_weights(folder):
        raise RunError(f"{path} does not belong to the weights beside it; restore both from one copy.")
    return card


def about_run(run: str | Path) -> dict[str, Any]:
    """Facts about a run besides its settings: the expected input, the best validation, the seconds of training."""
    folder = find_run(run)
    experiment, weights = read_experiment(folder), find_weights(folder, check=())
    manifest = read_manifest(weights.parent, (), check=())
    about = {name: manifest[name] for name in _KEPT if name in manifest}
    if experiment.task == "translate":
        about["expects"] = expectations(experiment.data, Vocabulary.load(folder, "source"))
    if "seconds" not in about and checkpoints(folder):
        about["seconds"] = round(read_cursor(checkpoints(folder)[-1]).seconds, 1)
    return about
