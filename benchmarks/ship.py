"""Make a model that ships from a trained run: python benchmarks/ship.py RUN en-fr/bahdanau --set newstest2014=A.en,B.fr

The run is exported small into models/NAME, scored before and after on every --set (source and target file, line for
line), and described in models/NAME/card.json and CARD.md, with the translations of twenty everyday sentences, unedited.
Beam 4. Scores that were measured elsewhere with the same weights are not measured again: BLEU and chrF of float32, and
of int8 where they are known too, `--known newstest2014=26.23,54.69,26.20,54.66`.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import regard
from regard.api.exporting import about_run, export, read_card
from regard.cli.text import lines_of
from regard.evaluate.scores import score
from regard.models.registry import entry
from regard.runs.included import FOLDERS

MODELS = Path(__file__).resolve().parent.parent / "models"
MOST = 16 * 2**20  # bytes of a model that ships
BEAM = 4
DATA = (
    "Europarl v7 and Tatoeba; newstest2014, the Europarl test set and the held-out part of Tatoeba were not trained on"
)
LICENCE = "Europarl is free to use; Tatoeba (tatoeba.org) is CC BY 2.0 FR; the weights are under the licence of regard"
EVERYDAY = {
    "en": (
        "Hello!",
        "Good morning, how are you?",
        "Thank you very much.",
        "Where is the station?",
        "What is your name?",
        "I don't understand.",
        "He has never been to Paris.",
        "She didn't tell me anything.",
        "I have two brothers and a sister.",
        "The train leaves at 7:45.",
        "It costs 3.50 euros.",
        "The war ended on 8 May 1945.",
        "Mr. Smith lives in London.",
        "Anna and Peter are coming tomorrow.",
        "Close the door, please.",
        "Don't touch that!",
        "If it rains, we will stay at home.",
        "The agreement on the European Economic Area was signed in August 1992.",
        "It is raining cats and dogs.",
        "Although the committee had discussed the proposal for several hours, the members who were present "
        "could not agree on the amount of money that should be given to the regions which had suffered most "
        "from the floods last year.",
    ),
    "fr": (
        "Bonjour !",
        "Bonsoir, comment allez-vous ?",
        "Merci beaucoup.",
        "Où est la gare ?",
        "Comment vous appelez-vous ?",
        "Je ne comprends pas.",
        "Il n'est jamais allé à Londres.",
        "Elle ne m'a rien dit.",
        "J'ai deux frères et une sœur.",
        "Le train part à 7 h 45.",
        "Ça coûte 3,50 euros.",
        "La guerre s'est terminée le 8 mai 1945.",
        "M. Dupont habite à Paris.",
        "Anna et Pierre arrivent demain.",
        "Fermez la porte, s'il vous plaît.",
        "Ne touche pas à ça !",
        "S'il pleut, nous resterons à la maison.",
        "L'accord sur l'Espace économique européen a été signé en août 1992.",
        "Il pleut des cordes.",
        "Bien que la commission ait discuté de la proposition pendant plusieurs heures, les membres présents "
        "n'ont pas pu se mettre d'accord sur la somme qui devait être accordée aux régions les plus touchées "
        "par les inondations de l'année dernière.",
    ),
}
BAD_AT = {
    "": [
        "words outside parliament and everyday speech: medicine, law, technology, slang",
        "many idioms, which it translates word for word",
        "names that it has never seen, which it may translate or misspell",
        "texts whose sentences depend on each other: every sentence is translated alone",
        "sentences longer than any in training, which are cut at clauses",
    ],
    "cho": [
        "long sentences: the whole source is one vector, and the more words it holds, the more are lost or invented"
    ],
}


def main() -> None:
    """Export, score, write the card."""
    given = arguments()
    began = time.monotonic()
    before = read_card(given.further) if given.further else {}  # it may be in the folder that is written
    folder = MODELS / FOLDERS[given.name] if given.models is None else given.models / FOLDERS[given.name]
    shutil.rmtree(folder, ignore_errors=True)
    size = export(given.run, folder)
    if size > MOST:
        print(f"WARNING: {size / 2**20:.1f} MiB are more than the {MOST >> 20} that a model may have.")
    whole, small = regard.load(given.run, given.device), regard.load(folder, given.device)
    small.name = FOLDERS[given.name]
    known = dict(given.known)
    scores = [compare(whole, small, *one, known.get(one[0], []), given.most) for one in given.sets]
    about = about_run(given.run)
    card: dict[str, Any] = {
        "name": given.name,
        "weights": about_weights(folder),
        "model": small.experiment.name,
        "paper": entry(small.experiment.name).paper,
        "languages": [small.source_language, small.target_language],
        "parameters": sum(part.numel() for part in small.model.parameters()),
        "bytes": size,
        "data": given.data,
        "licence": given.licence,
        "commands": [*before.get("commands", []), *(given.command or ["regard train"])],
        "seconds": (before.get("seconds") or 0) + (given.seconds or about.get("seconds") or 0),
        "device": given.trained_on or about.get("device"),
        "expects": about["expects"],
        "scores": scores,
        "sentences": everyday(small),
        "bad_at": [*BAD_AT[""], *BAD_AT.get(small.experiment.name, [])],
    }  # fmt: skip
    write_card(folder, card)
    print(page(card))
    print(f"{folder}: {size / 2**20:.1f} MiB, made in {time.monotonic() - began:.0f} seconds")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="trained run folder")
    parser.add_argument("name", choices=FOLDERS, help="name that the model ships under")
    parser.add_argument("--set", dest="sets", action="append", default=[], type=parse_set, metavar="NAME=SOURCE,TARGET")
    parser.add_argument("--known", action="append", default=[], type=parse_known, metavar="NAME=BLEU,CHRF[,BLEU,CHRF]")
    parser.add_argument("--most", type=int, default=0, help="score at most this many lines of a set; 0 = all")
    parser.add_argument("--command", action="append", help="a command that trained the run; repeatable")
    parser.add_argument("--further", type=Path, help="model that the run went on from; its training is on the card")
    parser.add_argument("--seconds", type=float, default=0.0, help="seconds of training (default: those of the run)")
    parser.add_argument("--trained-on", default="", help="device of training (default: that of the run)")
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--licence", default=LICENCE)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--models", type=Path, default=None, help="folder to write into (default: models)")
    return parser.parse_args()


def parse_set(text: str) -> tuple[str, Path, Path]:
    """NAME=SOURCE,TARGET."""
    name, _, files = text.partition("=")
    source, _, target = files.partition(",")
    if not (name and source and target):
        raise argparse.ArgumentTypeError(f"a set is NAME=SOURCE,TARGET; got {text}")
    return name, Path(source), Path(target)


def parse_known(text: str) -> tuple[str, list[dict[str, float]]]:
    """NAME=BLEU,CHRF of float32, then of int8."""
    name, _, numbers = text.partition("=")
    values = [float(number) for number in numbers.split(",")]
    if len(values) not in (2, 4):
        raise argparse.ArgumentTypeError(f"known scores are NAME=BLEU,CHRF or NAME=BLEU,CHRF,BLEU,CHRF; got {text}")
    return name, [{"bleu": values[at], "chrf": values[at + 1]} for at in range(0, len(values), 2)]


def compare(
    whole: Any, small: Any, name: str, source: Path, target: Path, known: list[dict[str, float]], most: int
) -> dict[str, Any]:
    """The scores of a set with the float32 weights and with the small ones."""
    sources, references = lines_of(source), lines_of(target)
    sources, references = (lines[: most or len(lines)] for lines in (sources, references))
    found: dict[str, Any] = {"name": name, "sentences": len(sources)}
    found["signatures"] = [one.signature for one in score(references, references, metrics=["bleu", "chrf"]).scores]
    for number, (kind, translator) in enumerate((("float", whole), ("small", small))):
        if number < len(known):
            found[kind] = known[number]
            continue
        written = [one.text for one in translator.translate(sources, beam=BEAM, split=False)]
        report = score(written, references, metrics=["bleu", "chrf"])
        found[kind] = {one.name.lower(): round(one.value, 2) for one in report.scores}
    print(f"{name}: {found['float']} as float32, {found['small']} small", flush=True)
    return found


def everyday(translator: Any) -> list[list[Any]]:
    """Twenty everyday sentences, each with its translation and what is wrong with it."""
    texts = EVERYDAY.get(translator.source_language, EVERYDAY["en"])
    written = translator.translate(list(texts), beam=BEAM)
    return [[text, one.text, one.flags] for text, one in zip(texts, written, strict=True)]


def write_card(folder: Path, card: dict[str, Any]) -> None:
    """The card as data and as a page."""
    (folder / "card.json").write_text(json.dumps(card, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    (folder / "CARD.md").write_text(page(card), encoding="utf-8")


def about_weights(folder: Path) -> str:
    """The SHA-256 of the weights, which ties the card to them."""
    return str(json.loads((folder / "manifest.json").read_bytes())["files"]["weights.safetensors"]["sha256"])


def full(found: dict[str, Any], metric: str) -> str:
    """A score of the float32 weights, which is missing where only the small ones were kept."""
    return f"{found['float'][metric]:.2f}" if "float" in found else "not measured"


def page(card: dict[str, Any]) -> str:
    """The card as a page."""
    expects = card["expects"]
    seconds = f"{card['seconds']:.0f} seconds" if card["seconds"] else "time not recorded"
    device = f" on {card['device']}" if card["device"] else ""
    case = "lower case" if expects["case"] == "lower" else "capitals and small letters"
    case += f" (`data.form={expects['form']}`)" if expects["form"] != "none" else ""
    signatures = ", ".join(f"`{one}`" for one in card["scores"][0]["signatures"]) if card["scores"] else "none"
    lines = [
        f"# {card['name']}",
        "",
        f"{card['model']} ({card['paper']}), {' to '.join(card['languages'])}, {card['parameters']:,} parameters, "
        f"{card['bytes'] / 2**20:.1f} MiB as int8 with a scale for each row.",
        "",
        f"- **Data**: {card['data']}.",
        f"- **Licence**: {card['licence']}.",
        f"- **Training**: {seconds}{device}, by the commands at the end.",
        f"- **Expects**: {expects['text']} text, {case}, sentences of at most {expects['longest']} tokens.",
        *(f"- **Bad at**: {one}." for one in card["bad_at"]),
        "",
        "| set | sentences | BLEU | BLEU, float32 | chrF | chrF, float32 |\n|---|---|---|---|---|---|",
        *(
            f"| {one['name']} | {one['sentences']} | {one['small']['bleu']:.2f} | {full(one, 'bleu')} | "
            f"{one['small']['chrf']:.2f} | {full(one, 'chrf')} |"
            for one in card["scores"]
        ),
        "",
        f"Beam {BEAM}. Signatures: {signatures}.",
        "",
        "Everyday sentences, unedited:",
        "",
        "| source | translation |\n|---|---|",
        *(
            f"| {source} | {written}{' *(' + ', '.join(flags) + ')*' if flags else ''} |".replace("\n", " ")
            for source, written, flags in card["sentences"]
        ),
        "",
        "The commands that trained it, one after another:",
        "",
        "```",
        *card["commands"],
        "```",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
