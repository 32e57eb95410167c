"""Everyday sentences, judged yes or no: python benchmarks/everyday.py [RUN ...] [--failures]

Translates the sentences of tests/everyday.toml with each run (default: all included models) and prints, for each kind,
how many translations pass every check. A machine can check what must be there and what must not; it cannot tell whether
the rest of a sentence is good, so a share here is an upper bound.

--out FILE keeps sources, translations and failed checks as JSON; --before FILE reads such a file of an earlier state
of the models, and each cell becomes "before → now".
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import regard
from regard.api.flags import lost_numbers
from regard.runs.included import shipped
from regard.sealed import write_atomically
from regard.text.normalise import fold_marks

SENTENCES = tomllib.loads((Path(__file__).parent.parent / "tests" / "everyday.toml").read_text(encoding="utf-8"))
NUMBERS = {
    "fr": ["zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze"],
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
}
# A comma of the source language that means something else in the target language: 1,500 and 12,50.
COMMA = {"fr": re.compile(r"\d,\d{3}(?!\d)"), "en": re.compile(r"\d,\d{1,2}(?!\d)")}
NEGATION = {
    "fr": re.compile(r"\b(?:pas|jamais|rien|personne|aucune?|plus|ni|non|nulle part|sans|j'ignor\w+|l'ignor\w+)\b"),
    "en": re.compile(r"n't\b|\b(?:not|never|nothing|nobody|no|none|neither|nor|nowhere|cannot|without)\b"),
}
# Frequent words of the source language that are no words of the target language.
LEFT = {
    "fr": re.compile(
        r"(?<![\w'-])(?:"
        r"the|and|of|is|are|was|were|am|be|been|have|has|had|do|does|did|don't|with|this|"
        r"that|these|those|you|your|my|his|her|they|their|it|its|it's|we|us|our|i|i'm|he|"
        r"she|what|where|when|why|how|who|not|never|nothing|would|could|should|will|can't|for|"
        r"from|at|to|in|by|there|here|very|please|thank"
        r")(?![\w'-])"
    ),
    "en": re.compile(
        r"(?<![\w'-])(?:"
        r"le|la|les|un|une|des|du|et|est|sont|était|ce|cette|ces|je|j'ai|tu|il|elle|nous|"
        r"vous|ils|elles|mon|ma|mes|votre|leur|leurs|ne|pas|que|qui|où|dans|avec|très|aux|au"
        r")(?![\w'-])"
    ),
}
REFLEXIVE = {"vous", "nous"}  # vous vous levez


def words(text: str) -> list[str]:
    """Lower-case words; an elided article is a separate word."""
    return re.findall(r"[^\W_]+", text.casefold())


def repeats(text: str) -> Iterator[str]:
    """Words or phrases that follow themselves at once or after a conjunction, as in "l'amour et l'amour"."""
    found = words(text)
    for size in (1, 2, 3, 4):
        for start in range(len(found) - 2 * size + 1):
            phrase = found[start : start + size]
            after = found[start + size : start + 2 * size + 1]
            joined = after[:1] in (["et"], ["ou"], ["and"], ["or"])
            if after[joined : joined + size] == phrase and not (size == 1 and phrase[0] in REFLEXIVE):
                yield " ".join(phrase)


def numbers(source: str, translation: str) -> Iterator[str]:
    """The numbers of a sentence that its translation may not have. A French time is read as 7:45."""
    source = re.sub(r"(\d) h (\d\d)", r"\1:\2", source)
    yield from lost_numbers(source, re.sub(r"(\d)\.(\d\d)(?= ?[ap]\.?m)", r"\1:\2", translation))
    yield from re.findall(r"(?<![\d.,:])\d(?![\d.,:]*\d)", source)  # single digits, not judged by `lost_numbers`


def written(number: str, translation: str, source: str, target: str) -> bool:
    """Whether a number is in a translation, a small one maybe as a word, or an hour after noon by 24 hours."""
    forms = [rf"(?<!\d){re.escape(number)}(?!\d)"]
    if number.isdigit() and int(number) < len(NUMBERS[target]):
        forms += [rf"\b{NUMBERS[target][int(number)]}", *([str(int(number) + 12)] if f"{number} pm" in source else ())]
    return re.search("|".join(forms), translation) is not None


def failures(sentence: dict, translation: str, target: str, kind: str) -> list[str]:
    """The checks that a translation into the language `target` ("fr" or "en") fails; none if it passes."""
    source, keep = sentence["text"], sentence.get("keep", ())
    read, wrote = words(source), words(translation)
    if not wrote:
        return ["empty"]
    failed = [] if all(one in translation for one in keep) else ["kept"]
    for one in keep:
        source, translation = source.replace(one, ""), translation.replace(one, "")
    plain = fold_marks(translation).casefold()
    lost = [one for one in numbers(source, plain) if not written(one, plain, source, target)]
    if lost or (COMMA[target].search(source) and COMMA[target].search(translation)):
        failed.append("numbers")
    if LEFT[target].search(plain):
        failed.append("language")
    if set(repeats(translation)) - set(repeats(source)):
        failed.append("repeated")
    if "?" in source and "?" not in translation:
        failed.append("question")
    if kind == "negation" and not NEGATION[target].search(plain):
        failed.append("negation")
    if not 0.4 * len(read) - 2 <= len(wrote) <= 2 * len(read) + 6:
        failed.append("length")
    if not all(re.search(rf"(?<!\w)(?:{group})", plain) for group in sentence.get("has", ())):
        failed.append("words")
    if any(re.search(rf"\b{one}", plain) for one in sentence.get("never", ())):
        failed.append("never")
    return failed


def judge(run: str) -> dict[str, list[list]]:
    """Kind -> [source, translation, failed checks] of each sentence, by a run's own settings of decoding."""
    model = regard.load(run, "cpu")
    way = f"{model.source_language}-{model.target_language}"
    if way not in SENTENCES:
        sys.exit(f"Expected a model of {' or '.join(SENTENCES)}, got {run} ({way}).")
    result = {}
    for kind, sentences in SENTENCES[way].items():
        written = [one.text for one in model.translate([sentence["text"] for sentence in sentences])]
        result[kind] = [
            [sentence["text"], text, failures(sentence, text, model.target_language, kind)]
            for sentence, text in zip(sentences, written, strict=True)
        ]
    return result


def table(now: dict[str, dict[str, list]], before: dict[str, dict[str, list]]) -> Iterator[str]:
    """Lines of Markdown: passed sentences of each kind and model, and the number of sentences."""
    yield f"| kind | {' | '.join(f'`{run}`' for run in now)} |"
    yield "|---" * (len(now) + 1) + "|"
    kinds = list(next(iter(now.values())))
    for kind in [*kinds, "all"]:
        cells = []
        for run in now:
            passed, count = [], 0
            for state in (before, now):
                if run in state:
                    rows = [row for each in kinds if kind in (each, "all") for row in state[run][each]]
                    passed.append(str(sum(not failed for *_, failed in rows)))
                    count = len(rows)
            cells.append(f"{' → '.join(passed)} of {count}")
        yield f"| {kind} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help="run folders or names (default: all included models)")
    parser.add_argument("--failures", action="store_true", help="print each translation that fails a check")
    parser.add_argument("--out", type=Path, help="JSON file of all translations")
    parser.add_argument("--before", type=Path, help="such a file of an earlier state")
    options = parser.parse_args()
    now = {run: judge(run) for run in options.runs or shipped()}
    before = json.loads(options.before.read_text(encoding="utf-8")) if options.before else {}
    if options.out:
        write_atomically(options.out, (json.dumps(now, ensure_ascii=False, indent=1) + "\n").encode())
    print("\n".join(table(now, before)))
    if options.failures:
        for run, kinds in now.items():
            for kind, rows in kinds.items():
                for source, text, failed in rows:
                    if failed:
                        print(f"{run}\t{kind}\t{', '.join(failed)}\t{source}\t{text}")


if __name__ == "__main__":
    main()
