"""Build the corpora that configs and docs use, from public repositories on GitHub at pinned commits.

    python benchmarks/data.py                           # all of them into data/
    python benchmarks/data.py multi30k ptb --out data
    python benchmarks/data.py --list                    # names, sizes, sources and terms
    python benchmarks/data.py ptb --from mirrors        # without a network: clones in mirrors/OWNER+NAME

Inputs and outputs are verified by SHA-256 (data.sha256 and data_inputs.sha256 in this folder). A download that was cut
off continues where it stopped, if the server allows it; a corpus that is there already is left alone.
"""

import argparse
import bz2
import gzip
import hashlib
import html
import io
import itertools
import json
import lzma
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from regard.sealed import digest, make_folder, write_atomically
from regard.text.sentences import split_sentences as sentence_spans

HERE = Path(__file__).resolve().parent


def sums(file: str) -> dict[str, str]:
    """The SHA-256 of each path in a file as sha256sum writes it."""
    lines = (HERE / file).read_text(encoding="utf-8").split("\n")[:-1]
    return {path: expected for expected, path in (line.split("  ") for line in lines)}


OUTPUTS = sums("data.sha256")  # CORPUS/FILE
INPUTS: dict[str, dict[str, str]] = {}  # CORPUS:PATH in its repository; for a folder the sum of all sums
for _path, _expected in sums("data_inputs.sha256").items():
    INPUTS.setdefault(_path.partition(":")[0], {})[_path.partition(":")[2]] = _expected
# Repository, commit, licence, pattern of its French catalogues, SHA-256 of their sums.
CATALOGUES = [line.split("\t") for line in (HERE / "data_catalogues.tsv").read_text(encoding="utf-8").split("\n")[:-1]]
CHUNK = 1 << 20


class BuildError(Exception):
    """A sentence for the user: what went wrong and what to do."""


def show(text: str, end: str = "\n") -> None:
    """Progress, on standard error; a line that is replaced by the next one only on a terminal."""
    if end == "\n" or sys.stderr.isatty():
        print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end=end, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Repository:
    """Files of a repository at a commit: from a clone in `clones`, or downloaded from `base` into `kept`."""

    name: str
    commit: str
    base: str
    kept: Path
    clones: Path | None

    def file(self, path: str, expected: str) -> bytes:
        """One file, which must have the SHA-256 `expected`."""
        if self.clones is not None:
            content = self._git("show", f"{self.commit}:{path}").communicate()[0]
        else:
            kept = self.kept / self.name.replace("/", "+") / path
            download(f"{self.base}/{self.name}/raw/{self.commit}/{path}", kept)
            content = kept.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != expected:
            self._refuse(path, expected, found)
        return content

    def folder(self, path: str, wanted: Callable[[str], bool], expected: str) -> Iterator[tuple[str, bytes]]:
        """The wanted files below a folder ("" for all). `expected` is the SHA-256 of their sums, in the order of their
        paths; it is checked after the last one, so nothing may be written before.
        """
        lines = []
        for name, content in self._members(path, wanted):
            lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}\n")
            if len(lines) % 100 == 0:
                show(f"  {self.name}: {len(lines):,} files read", end="")
            yield name, content
        found = hashlib.sha256("".join(sorted(lines, key=lambda line: line[66:])).encode()).hexdigest()
        if found != expected:
            self._refuse(f"{path} ({len(lines):,} files)", expected, found)

    def _members(self, path: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
        if self.clones is None:
            kept = self.kept / self.name.replace("/", "+") / f"{self.commit}.tar.gz"
            download(f"{self.base}/{self.name}/archive/{self.commit}.tar.gz", kept)
            with tarfile.open(kept) as archive:
                for member in archive:
                    name = member.name.partition("/")[2]  # the first folder is that of the repository
                    if member.isfile() and f"/{name}".startswith(f"/{path}/" if path else "/") and wanted(name):
                        yield name, archive.extractfile(member).read()  # type: ignore[union-attr]
            return
        listed = self._git("ls-tree", "-r", "-z", self.commit, *[path][: len(path)]).communicate()[0]
        with self._git("cat-file", "--batch") as git:  # a part of a clone may lack what is not wanted
            for entry, name in (line.split("\t") for line in listed.decode().split("\0")[:-1]):
                if not wanted(name):
                    continue
                git.stdin.write(f"{entry.split()[2]}\n".encode())  # type: ignore[union-attr]
                git.stdin.flush()  # type: ignore[union-attr]
                *_, kind, size = git.stdout.readline().split()  # type: ignore[union-attr]
                if kind != b"blob":
                    raise BuildError(f"The clone of {self.name} lacks {name} at {self.commit}.")
                yield name, git.stdout.read(int(size) + 1)[:-1]  # type: ignore[union-attr]

    def _git(self, *command: str) -> "subprocess.Popen[bytes]":
        folder = (self.clones or Path()) / self.name.replace("/", "+")
        folder = folder / "repo" if (folder / "repo").is_dir() else folder
        if not folder.is_dir():
            raise BuildError(f"There is no clone {folder}. Make it: git clone https://github.com/{self.name} {folder}")
        return subprocess.Popen(["git", "-C", str(folder), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def _refuse(self, what: str, expected: str, found: str) -> None:
        shutil.rmtree(self.kept / self.name.replace("/", "+"), ignore_errors=True)
        again = "The clone lacks it or has other content." if self.clones else "The download was removed; try again."
        raise BuildError(f"{self.name} at {self.commit}: {what} has SHA-256 {found}, expected {expected}. {again}")


def download(url: str, to: Path) -> None:
    """Fetch a file. What is there of an earlier attempt, in `to`.part, is continued if the server can do that."""
    if to.exists():
        return
    make_folder(to.parent)
    part = to.with_name(to.name + ".part")
    there = part.stat().st_size if part.exists() else 0
    try:
        with urlopen(Request(url, headers={"Range": f"bytes={there}-"} if there else {}), timeout=60) as answer:
            there = there if answer.status == 206 else 0
            size = there + int(answer.headers.get("Content-Length") or 0)
            with open(part, "ab" if there else "wb") as file:
                shown = 0.0
                while block := answer.read(CHUNK):
                    there += file.write(block)
                    if time.monotonic() > shown + 0.5:
                        shown = time.monotonic()
                        of = f" of {size / 1e6:,.1f}" if size else ""
                        show(f"  {to.name}: {there / 1e6:,.1f}{of} MB", end="")
            if there < size:
                raise BuildError(f"{url} ended after {there:,} of {size:,} bytes; run the command again to continue.")
    except HTTPError as error:
        if error.code == 416:  # nothing to continue: the part is whole, or no part of the file
            part.unlink()
            return download(url, to)
        raise BuildError(f"{url}: the server answered {error.code} {error.reason}.") from None
    except (URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", error)
        raise BuildError(
            f"{url} cannot be reached ({reason}). Run the command again to continue. Without a network, copy clones of "
            "the repositories that --list names to a folder DIR, each as OWNER+NAME, and add --from DIR; or copy data/."
        ) from None
    os.replace(part, to)


Built = Iterator[tuple[str, bytes]]  # the files of a corpus: name without .bz2, and content


def multi30k(source: Repository) -> Built:
    """Captions as they are in the repository, raw and tokenised."""
    for path, expected in INPUTS["multi30k"].items():
        content = source.file(path, expected)
        name = path.rpartition("/")[2]
        yield name.removesuffix(".gz"), gzip.decompress(content) if name.endswith(".gz") else content


def newstest(source: Repository) -> Built:
    """newstest2013 and newstest2014 as they are in the repository."""
    for path, expected in INPUTS["newstest.en-fr"].items():
        yield path.rpartition("/")[2], source.file(path, expected)


def hansards(source: Repository) -> Built:
    """The first 200 of 447 sentence pairs, and their links."""
    for (path, expected), name in zip(INPUTS["hansards.en-fr"].items(), ("dev.gold", "dev.text"), strict=True):
        yield name, b"".join(line + b"\n" for line in source.file(path, expected).split(b"\n")[:200])


def tatoeba(source: Repository) -> Built:
    """English and French, with a tab between them."""
    ((path, expected),) = INPUTS["tatoeba"].items()
    with zipfile.ZipFile(io.BytesIO(source.file(path, expected))) as archive:
        yield "eng-fra.tsv", archive.read("fra-eng/fra.txt")


def tatoeba_more(source: Repository) -> Built:
    """The sentences of each language, once. A line has two codes of languages and two sentences."""
    found: dict[str, dict[str, None]] = {"eng": {}, "fra": {}}
    for path, expected in INPUTS["tatoeba-more"].items():
        for line in gzip.decompress(source.file(path, expected)).decode().split("\n")[:-1]:
            codes, sides = line.split("\t")[:2], line.split("\t")[2:4]
            for code, side in zip(codes, sides, strict=True):
                if code in found and (text := " ".join(side.split())):
                    found[code][text] = None
    for code, name in (("eng", "en"), ("fra", "fr")):
        yield f"sentences.{name}", "".join(line + "\n" for line in found[code]).encode()


def ptb(source: Repository) -> Built:
    """Mikolov's version of the Penn Treebank."""
    ((path, expected),) = INPUTS["ptb"].items()
    with zipfile.ZipFile(io.BytesIO(source.file(path, expected))) as archive:
        for part in ("train", "valid", "test"):
            yield f"ptb.{part}.txt", archive.read(f"ptb.{part}.txt")


def imdb(source: Repository) -> Built:
    """The labelled reviews, shuffled; for the test the first half. A name ends in the number of stars: 200_8.txt."""
    labelled = re.compile(r"aclImdb/(train|test)/(pos|neg)/\d+_(\d+)\.txt").fullmatch
    reviews = dict(source.folder("aclImdb", lambda name: bool(labelled(name)), *INPUTS["imdb"].values()))
    for part, kept in (("train", 25000), ("test", 12500)):
        names = [name for side in ("pos", "neg") for name in sorted(reviews) if f"/{part}/{side}/" in f"/{name}"]
        random.Random(7).shuffle(names)
        lines = (
            json.dumps(
                {"stars": int(name[name.rindex("_") + 1 : -4]), "text": reviews[name].decode()}, ensure_ascii=False
            )
            for name in names[:kept]
        )
        yield f"{part}.jsonl", "".join(line + "\n" for line in lines).encode()


def flickr8k(source: Repository) -> Built:
    """The captions of the official split. The repository has appended others, so the first ones are taken."""
    parts = {
        path.rpartition("/")[2]: source.file(path, expected).decode() for path, expected in INPUTS["flickr8k"].items()
    }
    captions: dict[str, list[str]] = {}
    for line in parts["Flickr8k.token.txt"].split("\n")[:-1]:
        image, _, caption = line.partition("\t")
        captions.setdefault(image.partition("#")[0], []).append(caption)
    for part, kept in (("train", 6000), ("dev", 1000), ("test", 1000)):
        names = parts[f"Flickr_8k.{part}Images.txt"].replace("\r", "").split("\n")[:kept]
        lines = (
            json.dumps({"image": name.removesuffix(".jpg") + ".webp", "captions": captions[name]}, ensure_ascii=False)
            for name in names
        )
        yield f"{part}.jsonl", "".join(line + "\n" for line in lines).encode()


# Whitespace that the annotation added, tags, characters that are no text, and the language of a speaker: "- (FR)".
ADDED = re.compile(r"<Alignment[^>]*>\s+|\s+</Alignment>|<[^>]*>")
ODD = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffd\ue000-\uf8ff]"
)
LANGUAGE = re.compile(r"\s*-?\s*\(\s?(?:BG|CS|DA|DE|EL|EN|ES|ET|FI|FR|GA|HU|IT|LT|LV|MT|NL|PL|PT|RO|SK|SL|SV)\)\s*")


def cleaned(text: str) -> str:
    """One side of an annotated pair as plain text on one line."""
    text = LANGUAGE.sub(" ", ODD.sub("", html.unescape(ADDED.sub("", text))))
    return " ".join(re.sub(r"^[\s.\-–—]+", "", re.sub(r"['’] s\b", "'s", text)).split())


def europarl_pairs(source: Repository) -> list[tuple[str, str, str]]:
    """File, English and French of every pair of the repository, cleaned."""
    pair = re.compile(r"<en>(.*?)</en>\s*<fr>(.*?)</fr>", re.DOTALL)
    found = {
        name: [(name, cleaned(english), cleaned(french)) for english, french in pair.findall(content.decode())]
        for name, content in source.folder(
            "xml-files", lambda name: name.endswith(".xml"), *INPUTS["europarl.en-fr"].values()
        )
    }
    return [one for name in sorted(found) for one in found[name]]


def europarl_chosen() -> list[int]:
    """The number of each pair of europarl.en-fr among all of the repository."""
    planes = lzma.decompress((HERE / "data_europarl.xz").read_bytes())
    third = len(planes) // 3
    return [planes[i] | planes[third + i] << 8 | planes[2 * third + i] << 16 for i in range(third)]


def written(parts: dict[str, list[tuple[str, str]]]) -> Built:
    """Pairs of each part as two files, line for line."""
    for part, pairs in parts.items():
        for side, language in enumerate(("en", "fr")):
            yield f"{part}.{language}", "".join(pair[side] + "\n" for pair in pairs).encode()


def europarl(source: Repository) -> Built:
    """800,000 pairs for training, then dev, test and lentest of the last quarter of 2000, cleaned.

    data_europarl.xz has the number of each chosen pair among all of the repository, in three planes of bytes. They were
    chosen once: without duplicates, at most 150 words a side, no sides of very different lengths, and no sentence of
    the held-out text in the training text.
    """
    pairs, chosen = europarl_pairs(source), iter(europarl_chosen())
    sizes = {**{f"train.{part}": 200000 for part in range(4)}, "dev": 2000, "test": 3000, "lentest": 1848}
    yield from written({
        part: [pairs[number][1:] for number in itertools.islice(chosen, size)] for part, size in sizes.items()
    })  # fmt: skip


def fits(english: str, french: str) -> bool:
    """Whether two sides may be translations of each other: words, similar lengths, not equal."""
    short, long = sorted((len(english), len(french)))
    words = max(english.count(" "), french.count(" ")) < 100
    return words and english != french and long <= 2 * short + 12 and all(map(LETTERS.search, (english, french)))


LETTERS = re.compile(r"[^\W\d_]{2}")


def europarl_more(source: Repository) -> Built:
    """The pairs that europarl.en-fr does not have, shuffled, without the last quarter of 2000, which is for tests."""
    pairs, chosen = europarl_pairs(source), europarl_chosen()
    known = {pairs[number][1:] for number in chosen}
    held = {side for number in chosen[800000:] for side in pairs[number][1:]}
    more = [
        (english, french)
        for name, english, french in pairs
        if not re.match(r"xml-files/ep-00-1[012]", name) and fits(english, french) and not {english, french} & held
    ]
    more = [pair for pair in dict.fromkeys(more) if pair not in known]
    random.Random(7).shuffle(more)
    size = 200000
    yield from written({f"train.{start // size}": more[start : start + size] for start in range(0, len(more), size)})


# Inline markup of reStructuredText, Markdown and HTML, the text of which stays, and & before an access key.
MARKUP = re.compile(
    r":[a-z:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`|`+([^`<]*?)(?:\s*<[^`>]*>)?`+_*|\*{1,2}([^*\s][^*]*)\*{1,2}"
    r"|</?[a-zA-Z][^<>]*>|&(?=\w)"
)
CODE = re.compile(r"[`<>{}\[\]|\\_=*^~$#@]|%[\w(.]|::|--|/\w+/|https?:|\w\(\)|\w\.\w+\.\w")  # no running text


def messages(text: str) -> Iterator[tuple[str, str]]:
    """Sentences of a PO file and their translations, without markup; no message with placeholders or code."""
    import polib

    for entry in polib.pofile(text).translated_entries():
        forms = [(entry.msgid, entry.msgstr)]
        if entry.msgid_plural:
            forms = list(zip((entry.msgid, entry.msgid_plural), entry.msgstr_plural.values(), strict=False))
        for form in forms:
            plain = [
                html.unescape(MARKUP.sub(lambda found: "".join(filter(None, found.groups())), one)) for one in form
            ]
            if any(map(CODE.search, plain)):
                continue
            sides = [[" ".join(side[a:b].split()) for a, b in sentence_spans(side)] for side in plain]
            if len(sides[0]) != len(sides[1]):
                sides = [[" ".join(side.split())] for side in plain]
            yield from zip(*sides, strict=True)


def catalogues(source: Repository) -> Built:
    """Messages of software and sentences of its documentation, from the French catalogues of many repositories."""
    found: dict[tuple[str, str], None] = {}
    for name, commit, licence, pattern, expected in CATALOGUES:
        files = dict(
            replace(source, name=name, commit=commit).folder("", re.compile(pattern).fullmatch, expected)  # type: ignore[arg-type]
        )
        pairs = dict.fromkeys(pair for path in sorted(files) for pair in messages(files[path].decode()) if fits(*pair))
        size = sum(map(len, files.values()))
        show(f"  {name}\t{commit[:8]}\t{licence}\t{len(files)}\t{size / 1e6:.2f}\t{len(pairs):,}")
        found |= pairs
    yield from written({"train": list(found)})


@dataclass(frozen=True)
class Corpus:
    """Where a corpus comes from, on which terms, and how its files are made of the repository's."""

    repository: str
    commit: str
    build: Callable[[Repository], Built]
    about: str
    terms: str


CORPORA = {
    "multi30k": Corpus(
        "multi30k/dataset", "a3d2e0d26b56f3846f66a952536ffed4e401d05a", multi30k,
        "captions, English, German and French (Elliott et al. 2016)",
        "for non-commercial research and education, as its README says",
    ),
    "newstest.en-fr": Corpus(
        "Helsinki-NLP/OPUS-MT-testsets", "ac0f19c0be3cb4e0d9450fcb2d7a9847c4bdd180", newstest,
        "the news test sets of WMT 2013 and 2014, English and French", "for research (WMT)",
    ),
    "hansards.en-fr": Corpus(
        "neulab/awesome-align", "5f150d45bbe51e167daf0a84abebaeb07c3323d1", hansards,
        "200 sentence pairs with links by people (Och and Ney 2000; Mihalcea and Pedersen 2003)",
        "the links are for research; the repository has the BSD 3-Clause licence",
    ),
    "tatoeba": Corpus(
        "modelexlab/data", "adddaf33ac35572bcfeb421efec29435e7ea9332", tatoeba,
        "short sentences, English and French (tatoeba.org, manythings.org/anki)", "CC BY 2.0",
    ),
    "tatoeba-more": Corpus(
        "Helsinki-NLP/Tatoeba-Challenge", "d34a89ac102fd236503a1911dd1050564bf4e682", tatoeba_more,
        "English and French sentences of Tatoeba's pairs with other languages, for training only (Tiedemann 2020)",
        "CC BY 2.0 FR",
    ),
    "ptb": Corpus(
        "timbmg/RNNLM", "e26dff5d8f4b5d07ee459f192ee2131923d7584f", ptb,
        "Penn Treebank, Mikolov's version", "the text belongs to the LDC; for research, not to be redistributed",
    ),
    "imdb": Corpus(
        "PVidyadhar/Detection-of-Fraud-apps-using-Sentiment-Analysis", "81406d56e9c006de30f9d50737fd66177a4a1434", imdb,
        "film reviews with stars (Maas et al. 2011); the repository replaced a few by reviews of apps",
        "for research, with a citation of the paper",
    ),
    "flickr8k": Corpus(
        "edwardcruzcruz/Describiendo_imagenes_keras", "5c9a0ffed365098d0df880dd73c1908d2228cc28", flickr8k,
        "captions (Hodosh et al. 2013); docs/results/index.md says how to get the photographs, which are not public",
        "for non-commercial research and education",
    ),
    "europarl-more.en-fr": Corpus(
        "mjlaali/Europarl-ConcoDisco", "1a18432425a6ace708e96220b4fd1d4efd678ad0", europarl_more,
        "the other pairs of the same proceedings, for training only", "as europarl.en-fr",
    ),
    "catalogues.en-fr": Corpus(
        "", "", catalogues,
        f"messages and documentation of software, from {len(CATALOGUES)} repositories (data_catalogues.tsv)",
        "BSD, MIT, ISC, PostgreSQL, Apache 2.0, CC0 and CC BY 3.0: docs/models-data.md lists them",
    ),
    "europarl.en-fr": Corpus(
        "mjlaali/Europarl-ConcoDisco", "1a18432425a6ace708e96220b4fd1d4efd678ad0", europarl,
        "proceedings of the European Parliament, version 7 (Koehn 2005; Laali and Kosseim 2017)",
        "no known restriction by copyright; the annotations, which are dropped, are by Laali and Kosseim",
    ),
}  # fmt: skip


def build(name: str, out: Path, base: str, clones: Path | None) -> None:
    """Build one corpus in `out`/`name`, unless all of its files are there. A file is complete or not there."""
    corpus, folder = CORPORA[name], out / name
    files = {path: expected for path, expected in OUTPUTS.items() if path.startswith(f"{name}/")}
    if all((out / path).is_file() and digest(out / path) == expected for path, expected in files.items()):
        return show(f"{name}: already in {folder}")
    place = f"from https://github.com/{corpus.repository} at {corpus.commit[:8]}; " if corpus.commit else ""
    show(f"{name}: {corpus.about}\n  {place}{corpus.terms}")
    kept = out / ".downloads"
    source = Repository(corpus.repository, corpus.commit, base, kept, clones)
    made = {f"{name}/{file}.bz2": bz2.compress(content) for file, content in corpus.build(source)}
    wrong = [path for path, expected in files.items() if hashlib.sha256(made.get(path, b"")).hexdigest() != expected]
    if wrong or len(made) != len(files):
        raise BuildError(
            f"{name}: {', '.join(wrong) or 'the list of files'} came out otherwise than expected; nothing was written."
        )
    make_folder(folder)
    for path, content in made.items():
        write_atomically(out / path, content)
    for repository in [corpus.repository] if corpus.commit else [row[0] for row in CATALOGUES]:
        shutil.rmtree(kept / repository.replace("/", "+"), ignore_errors=True)
    show(f"{name}: {len(made)} files in {folder}, verified")


def main() -> int:
    """Reads the arguments, builds, and says what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CORPORA)} (default: all)")
    parser.add_argument("--out", type=Path, default=Path("data"), help="folder for the corpora (default: data)")
    parser.add_argument("--from", type=Path, dest="clones", metavar="DIR", help="folder of clones, each as OWNER+NAME")
    parser.add_argument("--base", default="https://github.com", help="address that stands for https://github.com")
    parser.add_argument("--list", action="store_true", help="show the corpora, their sources and terms")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in CORPORA]:
        parser.error(f"there is no corpus {unknown[0]!r}; known: {', '.join(CORPORA)}")
    try:
        for name in given.names or CORPORA:
            corpus = CORPORA[name]
            if given.list:
                place = f"{corpus.repository} at {corpus.commit}; " if corpus.commit else ""
                print(f"{name}: {corpus.about}\n  {place}{corpus.terms}")
            else:
                build(name, given.out, given.base, given.clones)
    except BuildError as failure:
        show(str(failure))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
