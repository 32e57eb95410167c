"""Tags around the right words: python benchmarks/tags.py [RUN] [--sentences 500]

Sentences of the built-in phrasebook, whose word links are known, are written as people write them and get one pair of
tags around one to three words whose translation stands together. Only sentences that the model translates as the
phrasebook does count, so that the right place of the tags is known. Two methods place them in the same translation:
attention (regard), and the substring method of LibreTranslate, which translates the tagged words alone and looks for
the result in the translation of the sentence.
"""

import argparse
import random
from typing import NamedTuple

import regard
from regard.corpora.registry import find_builtin
from regard.files.place import place_tags
from regard.files.segment import Builder, Segment, Span, join_sentences

LENGTHS = (4, 10)  # words of a sentence
AT_ONCE = 400  # sentences that are translated together


class Case(NamedTuple):
    """A sentence and its translation, with the words that tags go around in both."""

    source: str
    target: str
    tagged: Span
    right: Span


def natural(words: list[str]) -> tuple[str, list[Span]]:
    """The words as people write them: a capital letter first, no space before a full stop or after an apostrophe."""
    text, spans = "", []
    for word in words:
        apart = text and word != "." and not text.endswith("'")
        text += " " if apart else ""
        spans.append((len(text), len(text) + len(word)))
        text += word
    return text[:1].upper() + text[1:], spans


def cases(size: int, seed: int) -> list[Case]:
    """Sentences with tags, from the phrasebook's own links."""
    draw = random.Random(seed)
    found = []
    for example in find_builtin("phrasebook").generate(size, seed, *LENGTHS):
        source, read = natural(example.source.split(" "))
        target, wrote = natural(example.target.split(" "))
        first = draw.randint(0, len(read) - 2)
        last = min(first + draw.randint(1, 3), len(read) - 1) - 1  # never the full stop
        linked = sorted({j for i, j in example.alignment if first <= i <= last})
        others = {j for i, j in example.alignment if not first <= i <= last}
        if not linked or linked[-1] - linked[0] + 1 != len(linked) or others & set(linked):
            continue  # its translation does not stand together, or belongs to other words too
        tagged, right = (read[first][0], read[last][1]), (wrote[linked[0]][0], wrote[linked[-1]][1])
        found.append(Case(source, target, tagged, right))
    return found


def marked(text: str, span: Span) -> str:
    """The text with tags around a span."""
    return f"{text[: span[0]]}<b>{text[slice(*span)]}</b>{text[span[1] :]}"


def segment(case: Case) -> Segment:
    """The source with its tags taken out."""
    builder = Builder()
    builder.words(case.source[: case.tagged[0]])
    builder.open("<b>", "b")
    builder.words(case.source[slice(*case.tagged)])
    builder.close("</b>", "b")
    builder.words(case.source[case.tagged[1] :])
    return builder.build(marked(case.source, case.tagged))


def by_attention(translator: regard.Translator, some: list[Case]) -> list[str]:
    """The translations with tags placed by attention."""
    links = translator.link_words([case.source for case in some], [case.target for case in some])
    return [
        place_tags(segment(case), join_sentences(case.source, [(0, len(case.source))], [one]))
        for case, one in zip(some, links, strict=True)
    ]


def by_substring(translator: regard.Translator, some: list[Case]) -> list[str]:
    """The translations with tags where the translation of the tagged words alone is found, ignoring case and final
    marks; else around nothing."""
    parts = [case.source[slice(*case.tagged)] for case in some]
    found = []
    for case, alone in zip(some, translator.translate(parts, beam=1), strict=True):
        text = alone.text.rstrip(" .!?").lower()
        at = case.target.lower().find(text) if text else -1
        found.append(marked(case.target, (at, at + len(text)) if at >= 0 else (len(case.target),) * 2))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", default="en-fr")
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--seed", type=int, default=77)
    given = parser.parse_args()
    translator = regard.load(given.run)
    made = cases(20 * given.sentences, given.seed)
    exact: list[Case] = []
    tried = 0
    while tried < len(made) and len(exact) < given.sentences:
        some = made[tried : tried + AT_ONCE]
        written = translator.translate([case.source for case in some], beam=1)
        exact += [case for case, one in zip(some, written, strict=True) if one.text == case.target]
        tried += len(some)
    exact = exact[: given.sentences]
    print(f"{len(exact)} sentences with tags that {given.run} translates exactly, of {tried}")
    for name, place in (("attention", by_attention), ("substring", by_substring)):
        written = place(translator, exact)
        right = sum(one == marked(case.target, case.right) for one, case in zip(written, exact, strict=True))
        print(f"{name}: {100 * right / max(1, len(exact)):.1f} % of the tags around the right words")


if __name__ == "__main__":
    main()
