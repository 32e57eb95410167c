"""From the [data] settings of any task to a tokenised corpus, in at most two passes over its files.

The first pass counts the examples, chooses which to hold out, and samples text for the vocabularies; the second
tokenises into a memory-mapped store. If the corpus fits into memory, its files are read only once. Tasks differ in
their `Encoding`. The result is a pure function of the settings and the files: a second call with the same fingerprint
finds the vocabularies and the store instead of making them.
"""

import dataclasses
import hashlib
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import cache, partial
from itertools import compress, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.collector import without_collector
from regard.data.encoding import Encoding, Tally, fingerprint_of, have_text
from regard.data.store import STORE_FORMAT, Block, Store, find_store, write_store
from regard.data.tokenisers import Tokenise, tokenise_here, tokenisers
from regard.data.vocabulary import Vocabulary, made_from
from regard.errors import DataError, RunError, brief, counted
from regard.sealed import make_folder
from regard.text.lines import REPLACED
from regard.work import in_threads, usable_cores

Stages = Callable[[str, int, int | None], None]  # (what is being done, done, total or None)
SAMPLE = 1 << 19  # most examples to count words in, evenly spread over the corpus
SUBWORD_SAMPLE = 1 << 15  # most examples to learn subwords from: twice as many make a text 0.15 % shorter
MEMORY = 1 << 29  # bytes of examples that the first pass keeps
_READ = 512  # examples read at once
_BLOCK = 8_192  # examples tokenised at once
_THREADS = 16  # most threads that tokenise; each has a block in memory, or a process of 50 MB
_LARGE, _CORES = 50_000, 4  # least examples and threads for which processes are faster than threads
# Settings that do not change a store, except through the files and vocabularies, which are in the fingerprint.
_ELSEWHERE = {"cache", "sampling", "vocabulary_from", "max_line", "max_unpacked", "streams", "vectors"}


def quiet(stage: str, done: int, total: int | None) -> None:
    """Report no progress."""


@dataclasses.dataclass(frozen=True)
class Data:
    """A corpus ready for training."""

    encoding: Any  # of the task, with the vocabularies
    train: Any
    dev: Any
    shown: list[Any]  # `Encoding.shown` of each validation example
    tallies: list[Tally]  # of the corpus, and of validation files if there are any
    fingerprint: str  # of the files, the vocabularies and the settings
    notes: list[str]  # for the user

    @property
    def vocabularies(self) -> list[Vocabulary]:
        return self.encoding.vocabularies

    @property
    def vocabulary(self) -> Vocabulary:
        """The only vocabulary, or the first."""
        return self.vocabularies[0]


class Encoded(NamedTuple):
    """A block of examples as ids."""

    columns: dict[str, Mapping[str, Any]]  # of each part
    tally: Tally
    shown: list[Any]
    corpus: int  # 0, or 1 for validation files
    line: int  # of the last example


class Survey(NamedTuple):
    """The result of the first pass."""

    encoding: Encoding[Any]
    total: int
    held: frozenset[int]  # keys of the held-out texts
    kept: list[Any]  # every `stride`-th example: all of them, or if `MEMORY` is too small, those of the sample
    stride: int

    def holds_out(self, item: Any) -> bool:
        """Whether an example belongs to the validation part."""
        return bool(self.held) and sentence_key(self.encoding.texts(item)[0], self.encoding.config.seed) in self.held

    def encode(self, items: list[Any], which: int, tokenise: Tokenise) -> Encoded:
        """A block of the corpus (`which` is 0) or of the validation files (1)."""
        encoding, tally = self.encoding, Tally()
        if encoding.config.invalid == "replace":
            tally.replaced = sum(any(REPLACED in text for text in encoding.texts(item)) for item in items)
        rows = encoding.encode(items, tally, tokenise)
        dev = np.array([which > 0 or self.holds_out(item) for item in rows.items], bool)
        tally.held_out = 0 if which else int(dev.sum())
        tally.kept = len(rows.items) - tally.held_out
        parts = {"train": rows.where(~dev), "dev": rows.where(dev)}
        # Once for an example of several rows.
        kept = [value for item, _ in groupby(parts["dev"].items) for value in encoding.shown(item)]
        columns = {part: some.columns for part, some in parts.items() if some.items}
        return Encoded(columns, tally, kept, which, items[-1].line)

    def sample(self) -> list[Any]:
        """Examples of the training part for the vocabularies, evenly spread."""
        stride = _sample_stride(self.encoding, self.total, self.stride)
        chosen = [item for item in self.kept if (item.line - 1) % stride == 0]
        usable = compress(chosen, have_text(self.encoding.columns(chosen)))
        return [item for item in usable if not self.holds_out(item)]


def survey(encoding: Encoding[Any], report: Stages = quiet) -> Survey:
    """The first pass: count, choose what to hold out, keep every 2^n-th example."""
    keys, kept, stride, size, total = array("Q"), [], 1, 0, 0
    wanted, seed = 0 if encoding.dev else encoding.config.held_out, encoding.config.seed
    rest = iter(encoding.corpus)
    while items := list(islice(rest, _READ)):
        total = items[-1].line
        report("reading", total, None)
        columns = encoding.columns(items)
        usable = have_text(columns)
        encoding.see(compress(items, usable))
        keys.extend(sentence_key(text, seed) if wanted else 0 for text in compress(columns[0], usable))
        chosen = items[(1 - items[0].line) % stride :: stride]
        kept += chosen
        size += encoding.size(chosen)
        while size > MEMORY and len(kept) > 1:
            stride *= 2
            kept = [one for one in kept if (one.line - 1) % stride == 0]
            size = encoding.size(kept)
    if not keys:
        blank = f"all its {encoding.noun} ({total}) are blank or have an empty side"
        files = brief(", ".join(map(str, encoding.corpus.files)))
        why = blank if total else f"it has no {encoding.corpus.place}"
        raise DataError(f"The corpus{f' of {files}' if files else ''} is empty: {why}.")
    if stride > 1:  # the files are read again, so only the sample is needed
        stride = _sample_stride(encoding, total, stride)
        kept = [one for one in kept if (one.line - 1) % stride == 0]
    return Survey(encoding, total, choose_held_out(keys, wanted), kept, stride)


def _sample_stride(encoding: Encoding[Any], total: int, stride: int) -> int:
    """The stride of the sample for the vocabularies, a multiple of `stride`."""
    most = SUBWORD_SAMPLE if getattr(encoding.config, "subwords", "") in ("bpe", "unigram") else SAMPLE
    while total > most * stride:
        stride *= 2
    return stride


@without_collector()  # collecting among millions of small objects would take most of the time
def prepare(
    encoding: Encoding[Any], folder: Path, report: Stages = quiet, fixed: bool = False, expected: str = ""
) -> Data:
    """Make or find the vocabularies and the tokenised corpus of the run `folder`.

    With `fixed`, the vocabularies in the run folder are used whatever corpus they were made from, because a model was
    trained with them. `expected` is the fingerprint that the run was trained with so far; a different one is refused
    before anything is written. With several processes, call it in one process first.
    """
    config, shared = encoding.config, getattr(encoding.config, "cache", "")
    surveyed = cache(lambda: survey(encoding, report))  # once, and only if it is needed
    there = all((folder / f"{name}.json").exists() for name in encoding.names)
    elsewhere = "" if there and fixed else getattr(config, "vocabulary_from", "")
    if elsewhere:
        report("vocabulary", 0, None)
        try:
            encoding.load(Path(elsewhere))
        except DataError as error:
            raise DataError(f"data.vocabulary_from names {elsewhere}: {error}") from None
    if not ((there or elsewhere) and (shared or (folder / "corpus").is_dir())):
        surveyed()  # also computes the digests of the files; with vocabularies and a store, only these are needed
    source = _content(encoding)
    kept = there and not elsewhere and (fixed or all(made_from(folder, name) == source for name in encoding.names))
    if kept:
        encoding.load(folder)
    elif not elsewhere:
        found = surveyed()
        report("vocabulary", 0, None)
        encoding.make(found.sample())
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in _ELSEWHERE}
    vocabularies = [vocabulary.fingerprint for vocabulary in encoding.vocabularies]
    fingerprint = fingerprint_of([STORE_FORMAT, source, settings, vocabularies, encoding.depends()])
    if expected and fingerprint != expected:
        raise RunError(
            f"The corpus differs from the one that {folder} was trained on; restore it to resume, or use another --out."
        )
    if not kept:
        make_folder(folder)
        encoding.save(folder, source)
    place = Path(shared) / fingerprint[:16] if shared else folder / "corpus"
    store, notes = find_store(place, fingerprint)
    if store is None:
        store = _tokenise(surveyed(), folder, place, (fingerprint, source), report)
    tallies = [Tally(**known) for known in store.about["tallies"]]
    if not tallies[0].kept:
        raise DataError(f"Nothing is left to train on: {tallies[0]}.")
    if encoding.dev and not tallies[1].kept:
        raise DataError(f"Nothing is left to validate with: {tallies[1]}. Set other validation files, or none.")
    notes += [f"{name}: {tally}" for name, tally in zip(("corpus", "validation"), tallies, strict=False)]
    train, dev = encoding.open(store.parts["train"], training=True), encoding.open(store.parts["dev"], training=False)
    notes += encoding.describe(train, dev)
    return Data(encoding, train, dev, store.about["shown"], tallies, fingerprint, notes)


def _content(encoding: Encoding[Any]) -> str:
    return fingerprint_of([encoding.corpus.fingerprint(), encoding.dev.fingerprint() if encoding.dev else ""])


def _tokenise(found: Survey, folder: Path, place: Path, made_of: tuple[str, str], report: Stages) -> Store:
    """The second pass, with the vocabularies of `folder`, into the store `place`.

    `made_of` are the fingerprints of the store, and of the corpus in the first pass.
    """
    encoding = found.encoding
    if found.stride > 1:
        found.kept.clear()
    corpora = [encoding.corpus] + ([encoding.dev] if encoding.dev else [])
    tallies = [Tally(place=corpus.place, noun=encoding.noun) for corpus in corpora]
    shown: list[Any] = []

    def calls() -> Iterator[Callable[[], Encoded]]:
        for which, corpus in enumerate(corpora):
            rest = iter(found.kept if corpus is encoding.corpus and found.kept else corpus)
            while items := list(islice(rest, _BLOCK)):
                yield partial(found.encode, items, which, tokenise)

    def blocks(ahead: Iterator[Encoded]) -> Iterator[Block]:
        for columns, tally, kept, which, line in ahead:
            if not which:
                report("tokenising", line, found.total)
            tallies[which].add(tally)
            shown.extend(kept)
            yield from columns.items()

    def about() -> dict[str, Any]:
        if _content(encoding) != made_of[1]:
            raise DataError("The corpus changed while it was read; start again when its files are complete.")
        return {"tallies": [dataclasses.asdict(tally) for tally in tallies], "shown": shown}

    types, threads = encoding.column_types(), min(usable_cores(), _THREADS)
    in_processes = found.total >= _LARGE and threads >= _CORES and sys.executable
    here = nullcontext(tokenise_here(encoding.vocabularies))
    chosen = tokenisers(folder, encoding.names) if in_processes else here
    with chosen as tokenise, in_threads(calls(), threads + 2, threads) as ahead:  # SentencePiece releases the GIL
        return write_store(place, made_of[0], types, blocks(ahead), about)


def sentence_key(text: str, seed: int) -> int:
    """A hash of text and seed, evenly distributed."""
    content = f"{seed}:{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def choose_held_out(keys: Iterable[int], count: int) -> frozenset[int]:
    """The keys of the texts to hold out: about `count` examples, at most a tenth of them, at least one.

    Texts are chosen by smallest key, with all their examples, so that no text is on both sides of the split. A frequent
    text may therefore give a few more than `count`.
    """
    if count == 0:
        return frozenset()
    values, examples = np.unique(np.fromiter(keys, dtype=np.uint64), return_counts=True)
    total = int(examples.sum())
    if total == 0:
        return frozenset()
    if len(values) < 2:
        same = ", all with the same text" if total > 1 else ""
        raise DataError(
            f"The corpus has {counted(total, 'usable example')}{same}, so none can be held out; add more, set "
            "validation files, or set data.held_out=0."
        )
    wanted = min(count, max(1, total // 10))
    needed = int(np.searchsorted(np.cumsum(examples), wanted)) + 1
    return frozenset(values[: min(needed, len(values) - 1)].tolist())
