"""The models of the papers side by side: trainings with equal updates, their BLEU, and what explains their output.

    python benchmarks/data.py multi30k europarl.en-fr newstest.en-fr hansards.en-fr
    python benchmarks/papers.py --jobs 15            # on one GPU; repeat the command to continue
    python benchmarks/papers.py --table multi30k     # Markdown from runs/papers/results; see --help for the tables

The groups of jobs (`--only`), with three seeds of each training:

- phrasebook: small models on generated sentences, whose gold links are known, and `regard faithful` on them
- replaceable: benchmarks/replaceable.py on each Bahdanau of the phrasebook
- multi30k: the same models on image captions, English to German, and `regard faithful`
- pointer: See's model with the sizes and recipe of the others, with its own, and with its own and less dropout
- sutskever: the source read forwards and reversed, with two strengths of dropout
- transformers: the tiny Transformer, and what newer ones changed, with about the same number of weights
- europarl: Bahdanau, Luong and the Transformer on the first 60,000 pairs, and `regard faithful`
- included: `regard faithful` with the included models on newstest2014, Europarl and the Hansards (gold links)

A job writes runs/papers/results/NAME.json and runs/papers/logs/NAME.txt. It is done when its result exists, and begins
when what it needs is done. Half of the sentences of a real corpus have at most eight words and signs, so that every
subset of them can be erased.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from models_data import read
from safetensors import safe_open
from train_models import regard, script, shared_gpu, shown

from regard.errors import ConfigError
from regard.evaluate.by_length import COLOURS, MARKERS, check_plot, save_plot
from regard.evaluate.faithful import ORACLE, RANDOM
from regard.look.attribution import METHODS
from regard.look.contributions import attends, layers_of
from regard.text.lines import read_lines

HERE = Path(__file__).resolve().parent
OUT = Path("runs/papers")
SEEDS = (1, 2, 3)
EXPLAINED = ("rnnencdec", "bahdanau", "luong", "monotonic", "coverage", "lstmn", "transformer")
SHORT, LONG = range(4, 9), range(9, 31)  # words and signs of the two halves of the chosen sentences
EUROPARL = 60_000  # pairs

FIXED, LAYERED = ("rnnencdec", "en-fr/cho"), ("transformer", "en-fr", "fr-en")  # without attention; Transformers
MODELS = {"en-fr": ("en", "fr"), "fr-en": ("fr", "en"), "en-fr/bahdanau": ("en", "fr"), "en-fr/cho": ("en", "fr")}
QUIET = ["train.precision=bf16", "train.validate_every=500", "train.validate_sentences=0", "train.save_every=100000"]
CAPTIONS = ["configs/multi30k.toml", *QUIET]
TINY = ["configs/multi30k-transformer.toml", *QUIET[:-1], "train.steps=5000"]
CONSTANT = ["--model", "sutskever", "train.schedule=constant", "train.steps=6000"]
SYSTEMS: dict[str, dict[str, list[str]]] = {  # group -> system -> arguments of `regard train`
    "multi30k": {
        **{name: [*CAPTIONS, "--model", name] for name in EXPLAINED if name != "transformer"},
        "transformer": TINY,
    },
    "pointer": {
        "pointer": [
            *[*CAPTIONS, "--model", "pointer", "model.embedding=256", "model.width=512", "model.attention=512"],
            "train.label_smoothing=0.1",
        ],
        "pointer, own sizes and recipe": [*CAPTIONS, "--model", "pointer"],
        "pointer, the same with a dropout of 0.2": [*CAPTIONS, "--model", "pointer", "model.dropout=0.2"],
    },
    "sutskever": {
        f"sutskever, {order}, dropout {dropout}": [
            *[*CAPTIONS, *CONSTANT, f"model.reverse={str(order == 'reversed').lower()}", f"model.dropout={dropout}"]
        ]
        for dropout in (0.5, 0.3)
        for order in ("reversed", "forwards")
    },
    "transformers": {
        "RMSNorm": [*TINY, "model.layer_norm=rms"],
        "SwiGLU": [*TINY, "model.activation=swiglu", "model.inner=168"],
        "two key heads": [*TINY, "model.key_heads=2", "model.inner=320"],
        "all three": [
            *[*TINY, "model.layer_norm=rms", "model.activation=swiglu", "model.key_heads=2", "model.inner=216"]
        ],
    },
}


@dataclass(frozen=True)
class Job:
    """A command whose result is kept, and the jobs and files that it needs."""

    name: str
    words: list[str]
    needs: tuple[str, ...] = ()
    run: str = ""  # the folder that a training fills

    @property
    def result(self) -> Path:
        return OUT / "results" / f"{self.name}.json"


def slug(*parts: object) -> str:
    return re.sub(r"[^\w.]+", "-", "-".join(map(str, parts)))


def jobs(given: argparse.Namespace) -> Iterator[Job]:
    """Every job, the most important first."""
    text = OUT / "text"
    for name, size, seed in (("phrasebook", 300, 77), ("phrasebook-train", 10_000, 5)):
        made = regard("corpora", "phrasebook", "--out", str(text / name), "--size", str(size))
        yield Job(name, [*made, "--max-words", "8", "--seed", str(seed), "--overwrite"])
    for seed in SEEDS:
        for model in EXPLAINED:
            settings = ["configs/phrasebook.toml", "--model", model, "train.minutes=0"]
            settings += ["data.size=10000", "data.max_words=8", "train.batch_tokens=1024", "train.steps=3000"]
            settings += ["train.validate_every=500", "train.validate_sentences=100"]
            yield from trained("phrasebook", model, seed, settings, given, text / "phrasebook", gold=True)
        words = script("replaceable.py", str(OUT / slug("phrasebook", "bahdanau", seed)))
        words += [str(text / "phrasebook-train"), str(text / "phrasebook"), "--device", given.device]
        if given.sentences < 30:
            words += ["--steps", "2", "--sentences", str(given.sentences)]
        needs = slug("phrasebook", "bahdanau", seed), "phrasebook", "phrasebook-train"
        yield Job(slug("replaceable", seed), words, needs)
        for group in ("sutskever", "multi30k", "pointer", "transformers"):
            for name, settings in SYSTEMS[group].items():
                if not name.endswith("0.3"):
                    yield from trained(group, name, seed, settings, given, text / "multi30k")
        if seed == SEEDS[0]:
            yield from included(given)
    for seed in SEEDS:
        for model in ("bahdanau", "luong", "transformer"):
            settings = [f"configs/multi30k{'-transformer' * (model == 'transformer')}.toml", "--model", model]
            settings += QUIET[:-1] if model == "transformer" else QUIET  # the Transformer averages checkpoints
            for side, language in (("source", "en"), ("target", "fr")):
                settings += [f"data.{side}={text / f'europarl-train.{language}'}", f"data.{side}_language={language}"]
                settings += [f"data.dev_{side}={given.data / f'europarl.en-fr/dev.{language}.bz2'}"]
            settings += ["model.dropout=0.3", "data.max_length=60", "train.steps=4000"]
            yield from trained("europarl", model, seed, settings, given, text / "europarl")
    for seed in SEEDS:
        for name, settings in SYSTEMS["sutskever"].items():
            if name.endswith("0.3"):
                yield from trained("sutskever", name, seed, settings, given, text / "multi30k")
    for seed in SEEDS:
        for model in EXPLAINED[1:]:
            run = OUT / slug("multi30k", model, seed)
            sides = [text / f"multi30k.{side}" for side in ("source", "target")]
            words = faithful(model, run, *sides, None, given, 0)
            yield Job(f"{run.name}-removed", [*words, "--erase", "removed"], (run.name,))


def included(given: argparse.Namespace) -> Iterator[Job]:
    """The faithfulness of attributions of the included models."""
    text = OUT / "text"
    for model, (source, target) in MODELS.items():
        folder = given.models / {"en-fr": "en-fr-transformer"}.get(model, model.replace("/", "-"))
        for corpus in ("newstest", "europarl", "hansards"):
            files = text / f"{corpus}.{source}", text / f"{corpus}.{target}"
            gold = text / f"{corpus}.gold.{source}" if corpus == "hansards" else None
            words = faithful(model, folder, *files, gold, given, 0 if gold else given.sanity)
            yield Job(slug("included", model, corpus, "faithful"), words, (str(folder / "weights.safetensors"),))


def trained(
    group: str, name: str, seed: int, settings: list[str], given: argparse.Namespace, text: Path, gold: bool = False
) -> Iterator[Job]:
    """A training, its BLEU on the test set, and the faithfulness of its attributions, where it is wanted."""
    run = OUT / slug(group, name, seed)
    cache = f"data.cache={OUT / 'cache'}"
    more = [f"train.seed={seed}", f"train.device={given.device}", cache, *given.changes]
    last = {word.partition("=")[0] if "=" in word else word: word for word in [*settings, *more]}  # of each setting
    yield Job(run.name, regard("train", *last.values(), "--out", str(run)), run=str(run))
    suffixes = ("en", "fr") if group == "europarl" else ("source", "target")
    sides = [text.with_name(f"{text.name}.{suffix}") for suffix in suffixes]
    tests = [side.with_name(f"{text.name}-test.{suffix}") for side, suffix in zip(sides, suffixes, strict=True)]
    tests = sides if gold else tests
    known = (run.name, *(("phrasebook",) if gold else ()))
    words = regard("score", str(run), "--source", str(tests[0]), "--target", str(tests[1]), "--json", "--no-ter")
    yield Job(f"{run.name}-score", [*words, "--beam", "5", "--device", given.device], known)
    if name in EXPLAINED:
        links = text.with_name(f"{text.name}.gold") if gold else None
        words = faithful(name, run, *sides, links, given, given.sanity)
        yield Job(f"{run.name}-faithful", words, known)
        if gold:
            words = faithful(name, run, *sides, links, given, 0)
            yield Job(f"{run.name}-removed", [*words, "--erase", "removed"], known)


def faithful(
    model: str, run: Path, source: Path, target: Path, gold: Path | None, given: argparse.Namespace, sanity: int
) -> list[str]:
    words = regard("faithful", str(run), "--source", str(source), "--target", str(target), "--json")
    words += ["--sentences", str(given.sentences), "--sanity", str(min(sanity, given.sentences))]
    if given.without:
        undefined = {attends: model in FIXED, layers_of: model not in LAYERED}
        named = [name for name, method in METHODS.items() if not undefined.get(method.needs)]
        words += ["--methods", ",".join(name for name in named if not {name, f"{model}:{name}"} & {*given.without})]
    return [*words, "--device", given.device, *(["--gold", str(gold)] if gold else [])]


# --- the text


def choose(sources: list[str], targets: list[str], *more: list[str], count: int) -> list[tuple[str, ...]]:
    """Short pairs and longer ones in turns, each evenly spaced; with what `more` has on their lines."""
    found = []
    for sizes in (SHORT, LONG):
        pairs = dict.fromkeys(zip(sources, targets, *more, strict=True))
        fit = [pair for pair in pairs if all(len(re.findall(r"\w+|[^\w\s]", side)) in sizes for side in pair[:2])]
        found.append([fit[number * len(fit) // (count // 2)] for number in range(count // 2)])
    return [pair for both in zip(*found, strict=True) for pair in both]


def write_text(data: Path, count: int) -> None:
    """The test sentences and the training text that are not in data/ as they are needed."""
    text = OUT / "text"
    text.mkdir(parents=True, exist_ok=True)

    def put(name: str, rows: Iterable[str]) -> None:
        (text / name).write_text("".join(row + "\n" for row in rows), encoding="utf-8")

    def missing(corpus: Path) -> bool:
        if (found := corpus.with_name(f"{corpus.name}.bz2")).exists():
            return False
        print(
            f"{found} is missing, and the jobs that need it fail; build it: python benchmarks/data.py "
            f"{corpus.parent.name}",
            flush=True,
        )
        return True

    captions, news, parliament = "multi30k/test_2016_flickr", "newstest.en-fr/newstest2014", "europarl.en-fr/test"
    for name, place, sides in (
        ("multi30k", captions, {"source": "en", "target": "de"}),
        ("newstest", news, {"en": "en", "fr": "fr"}),
        ("europarl", parliament, {"en": "en", "fr": "fr"}),
    ):
        if missing(data / f"{place}.en"):
            continue
        lines = [read(data / f"{place}.{language}.bz2") for language in sides.values()]
        chosen = choose(*lines, count=count)
        for number, side in enumerate(sides):
            put(f"{name}.{side}", [pair[number] for pair in chosen])
            put(f"{name}-test.{side}", lines[number])
    if not missing(data / "europarl.en-fr/train.0.en"):
        for side in ("en", "fr"):
            lines = read_lines(data / f"europarl.en-fr/train.0.{side}.bz2")
            put(f"europarl-train.{side}", [line for _, line in zip(range(EUROPARL), lines, strict=False)])
    if not missing(data / "hansards.en-fr/dev.text"):
        pairs = [line.split(" ||| ") for line in read(data / "hansards.en-fr/dev.text.bz2")]
        sides = [[pair[number].strip() for pair in pairs] for number in (0, 1)]
        english, french, links = zip(
            *choose(*sides, read(data / "hansards.en-fr/dev.gold.bz2"), count=count), strict=True
        )
        put("hansards.en", english)
        put("hansards.fr", french)
        put("hansards.gold.en", links)
        put("hansards.gold.fr", [re.sub(r"(\d+)([-p])(\d+)", r"\3\2\1", line) for line in links])


# --- running


def there(need: str, known: dict[str, Job]) -> bool:
    """Whether the result of a job, or a file, exists."""
    return known[need].result.exists() if need in known else Path(need).exists()


def ready(job: Job, known: dict[str, Job]) -> bool:
    return all(there(need, known) for need in job.needs)


def keep(job: Job, seconds: float) -> None:
    """Keep what a job that has ended well printed, and its command."""
    out = OUT / "logs" / f"{job.name}.out"
    lines = out.read_text(encoding="utf-8").split("\n")
    found: Any = [json.loads(line) for line in lines if line.startswith("{")]
    about: dict[str, Any] = {"command": shown(job), "seconds": round(seconds, 1), "found": found}
    if job.run:
        with safe_open(Path(job.run) / "weights.safetensors", "pt") as weights:
            sizes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118 - not a dict
        about["weights"] = sum(math.prod(size) for size in sizes)
    job.result.with_suffix(".part").write_text(json.dumps(about), encoding="utf-8")
    job.result.with_suffix(".part").replace(job.result)


def run(chosen: list[Job], every: list[Job], count: int, limit: float) -> list[str]:
    """Run jobs, `count` at once, and return the names of those that failed or could not begin."""
    known, waiting, failed = {job.name: job for job in every}, list(chosen), list[str]()
    running: dict[str, tuple[subprocess.Popen[bytes], Job, float]] = {}
    for folder in ("logs", "results"):
        (OUT / folder).mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    threads = str(max(1, (os.cpu_count() or 1) // count))
    environment = {"OMP_NUM_THREADS": threads, **os.environ, "PYTHONPATH": path}
    while waiting or running:
        for job in [job for job in waiting if ready(job, known)][: count - len(running)]:
            waiting.remove(job)
            logs = OUT / "logs" / job.name
            with open(f"{logs}.out", "wb") as out, open(f"{logs}.txt", "ab") as log:
                process = subprocess.Popen(job.words, stdout=out, stderr=log, env=environment)
            running[job.name] = process, job, time.monotonic()
        for name, (process, job, began) in list(running.items()):
            code, seconds = process.poll(), time.monotonic() - began
            if code is None:
                continue
            del running[name]
            if code == 0:
                keep(job, seconds)
            else:
                failed.append(name)
            said = f"{len(waiting)} wait, {len(running)} run" + f"; failed with {code}" * bool(code)
            print(f"{time.strftime('%H:%M:%S')} {name}: {seconds:.0f} s; {said}", flush=True)
        if time.monotonic() > limit:
            for process, *_ in running.values():
                process.terminate()  # a training saves a checkpoint, and the next call continues it
            print(f"The time is over: {', '.join(running)} stopped; repeat the command to continue.", flush=True)
            break
        if waiting and not running and not any(ready(job, known) for job in waiting):
            for job in waiting:
                lacks = (need for need in job.needs if not there(need, known))
                print(f"{job.name} did not begin: it needs {', '.join(lacks)}.", flush=True)
            break
        time.sleep(0.1)
    return [*failed, *(job.name for job in waiting)]


# --- tables


def results(pattern: str) -> dict[str, Any]:
    """The results whose names match, by name."""
    found = {path.stem: json.loads(path.read_bytes()) for path in sorted((OUT / "results").glob("*.json"))}
    return {name: about for name, about in found.items() if re.fullmatch(pattern, name)}


def spread(values: list[float], digits: int, alone: str = " †") -> str:
    """The mean and the range of the seeds; `alone` marks a single value."""
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ({ranged(min(values), max(values), digits)})" if len(values) > 1 else mean + alone


def ranged(low: float, high: float, digits: int) -> str:
    """A range; a dash between two negative numbers would not be read."""
    return f"{low:.{digits}f}{' to ' if low < 0 or high < 0 else '-'}{high:.{digits}f}"


def print_rows(head: list[str], rows: Iterable[list[str]]) -> None:
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()


def bleu(group: str, name: str) -> list[float]:
    """BLEU of a system, of each seed."""
    scores = results(re.escape(slug(group, name)) + r"-\d-score").values()
    return [one["value"] for about in scores for one in about["found"][0]["scores"] if one["name"] == "BLEU"]


def table_models() -> None:
    """BLEU of each system on Multi30k."""
    rows = []
    for group, systems in SYSTEMS.items():
        for name in systems:
            found = bleu(group, name)
            sizes = [about["weights"] for about in results(re.escape(slug(group, name)) + r"-\d").values()]
            rows.append([name, spread(found, 1), f"{sizes[0] / 1e6:.1f} M" if sizes else "-", str(len(found))])
    print_rows(["model", "BLEU", "weights", "seeds"], rows)


def table_faithful(group: str, kind: str = "faithful") -> None:
    """Each measure of each method, a column for each model; means and ranges over seeds."""
    models = EXPLAINED if group in ("phrasebook", "multi30k") else ("bahdanau", "luong", "transformer")
    found = {name: results(rf"{slug(group, name)}-\d-{kind}").values() for name in models}
    print_measures(f"{group}, {kind}", {name: [one["found"][0] for one in about] for name, about in found.items()})
    measured = [name for name, about in found.items() if about]
    print_rows(["", *measured], [["BLEU", *(spread(bleu(group, name), 1) for name in measured)]])


def table_included() -> None:
    """The included models on real text, with intervals over sentences."""
    for corpus in ("newstest", "europarl", "hansards"):
        found = {name: results(f"{slug('included', name, corpus)}-faithful").values() for name in MODELS}
        print_measures(corpus, {name: [one["found"][0] for one in about] for name, about in found.items()}, True)


def print_measures(title: str, found: dict[str, list[Any]], included: bool = False) -> None:
    """A table for each measure. `found`: model -> the reports of its seeds; of one report, intervals over sentences."""
    models, alone = [name for name, reports in found.items() if reports], "" if included else " †"
    for measure in ("reach", "correlation", "comprehensiveness", "sufficiency", "aer", "aer_threshold", "seconds"):
        rows = []
        for method in (*METHODS, RANDOM, ORACLE):
            cells = []
            for name in models:
                whole = [one for report in found[name] for one in report["methods"] if one["method"] == method]
                values = [one[measure] for one in whole if one.get(measure) is not None]
                unit, digits = (100, 0) if measure.startswith("aer") else (1, 2)
                if len(values) == 1 and isinstance(values[0], dict):
                    value, low, high = (unit * values[0][key] for key in ("value", "low", "high"))
                    cells.append(f"{value:.{digits}f} ({ranged(low, high, digits)}){alone}")
                else:
                    numbers = [unit * (one["value"] if isinstance(one, dict) else one) for one in values]
                    cells.append(spread(numbers, digits, alone))
            if any(cell != "-" for cell in cells):
                rows.append([method, *cells])
        if rows:
            print(f"{title}: {measure}\n")
            print_rows(["method", *models], rows)
    for name in models:
        rows = []
        for method in METHODS:
            whole = [one for report in found[name] for one in report["methods"] if one["method"] == method]
            kept = [one["kept"] for one in whole if one["kept"]]
            if kept:
                known = {part: [one[part] for one in kept if one[part] is not None] for part in kept[0]}
                rows.append([method, *(spread(values, 2, alone) for values in known.values())])
        if rows:
            parts = next(one["kept"] for one in found[name][0]["methods"] if one["kept"])
            print(f"{title}, {name}: kept after each part is shuffled\n")
            print_rows(["method", *parts], rows)


def table_replaceable() -> None:
    """Bahdanau with other attention, by seed."""
    every = [row for about in results(r"replaceable-\d").values() for row in about["found"]]
    names = list(dict.fromkeys(row["attention"] for row in every))
    measures = [key for key in (every[0] if every else {}) if key not in ("run", "attention")]
    rows = [
        [name, *(spread([row[key] for row in every if row["attention"] == name and key in row], 2) for key in measures)]
        for name in names
    ]
    print_rows(["attention", *measures], rows)


def panels(kind: str) -> dict[str, dict[str, list[Any]]]:
    """The panels of a drawing: title -> model -> the reports of its seeds."""

    def reports(names: Iterable[str], pattern: str) -> dict[str, list[Any]]:
        found = {name: results(pattern.format(slug(name))).values() for name in names}
        return {name: [one["found"][0] for one in about] for name, about in found.items() if about}

    if kind == "included":
        corpora = {"newstest": "newstest2014", "europarl": "Europarl", "hansards": "Hansards"}
        return {title: reports(MODELS, rf"included-{{}}-{name}-faithful") for name, title in corpora.items()}
    return {
        "generated sentences, words masked (rnnencdec: unknown)": reports(EXPLAINED, r"phrasebook-{}-\d-faithful"),
        "generated sentences, words removed": reports(EXPLAINED, r"phrasebook-{}-\d-removed"),
        "captions of Multi30k, words masked (rnnencdec: unknown)": reports(EXPLAINED, r"multi30k-{}-\d-faithful"),
    }


def draw_reach(path: Path, kind: str) -> None:
    """Reach of each model and method: the mean and the range of the seeds, or an interval over sentences."""
    shown, drawn = [name for name in METHODS if name != "attention-norm"], panels(kind)  # near attention
    figure = Figure(figsize=(9.5, 2.8 * len(drawn)), layout="constrained")
    for axes, (title, models) in zip(figure.subplots(len(drawn), 1), drawn.items(), strict=True):
        for number, method in enumerate(shown):
            for place, reports in enumerate(models.values()):
                found = [one["reach"] for report in reports for one in report["methods"] if one["method"] == method]
                found = [one for one in found if one]
                if not found:
                    continue
                mean, x = (
                    statistics.fmean(one["value"] for one in found),
                    place + (number - len(shown) / 2 + 0.5) * 0.09,
                )
                low, high = (
                    (found[0]["low"], found[0]["high"])
                    if len(found) == 1
                    else (min(one["value"] for one in found), max(one["value"] for one in found))
                )
                look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
                look |= {"linestyle": "none"} | ({"markerfacecolor": "none"} if number >= len(COLOURS) else {})
                axes.errorbar(x, mean, [[mean - low], [high - mean]], **look, markersize=5, label=method)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.axhline(1, color="black", linewidth=0.8, linestyle=":")
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(range(len(models)), list(models))
        axes.set_title(title, fontsize=10)
    figure.supylabel("reach: 0 is a random order, 1 the best one", fontsize=9)
    handles = {label: one for axes in figure.axes for one, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    named = [name for name in shown if name in handles]
    figure.legend([handles[name] for name in named], named, loc="outside right upper", frameon=False, fontsize=8)
    save_plot(figure, path)


TABLES = {
    "models": table_models,
    "multi30k": lambda: table_faithful("multi30k"),
    "multi30k-removed": lambda: table_faithful("multi30k", "removed"),
    "phrasebook": lambda: table_faithful("phrasebook"),
    "phrasebook-removed": lambda: table_faithful("phrasebook", "removed"),
    "europarl": lambda: table_faithful("europarl"),
    "included": table_included,
    "replaceable": table_replaceable,
}


def begins(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, f"{pattern}*") for pattern in patterns)


def select(every: list[Job], only: list[str], but: list[str]) -> list[Job]:
    """The jobs without a result whose names begin with one of `only` (if there are any) and with none of `but`.

    A pattern that fits no job is refused.
    """
    for pattern in (*only, *but):
        if not any(begins(job.name, [pattern]) for job in every):
            groups = dict.fromkeys(job.name.partition("-")[0] for job in every)
            raise ConfigError(f"No job begins with {pattern!r}; the groups are {', '.join(groups)}.")
    fit = (job for job in every if (not only or begins(job.name, only)) and not begins(job.name, but))
    return [job for job in fit if not job.result.exists()]


def main() -> int:
    """Run the jobs, or print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", nargs="+", choices=TABLES, help="print tables of the results instead")
    parser.add_argument(
        "--only", nargs="+", metavar="GROUP", help="jobs whose names begin so, with * and ? (default: all)"
    )
    parser.add_argument("--but", nargs="+", default=[], metavar="GROUP", help="leave these out")
    parser.add_argument("--jobs", type=int, default=1, help="at once")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after this time; repeat to continue")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--models", type=Path, default=Path("models"), help="folder of the included models")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sentences", type=int, default=60, help="of each set, whose attributions are measured")
    parser.add_argument("--sanity", type=int, default=3, help="sentences attributed again with shuffled weights")
    parser.add_argument("--without", nargs="*", default=[], metavar="[MODEL:]METHOD", help="leave these methods out")
    parser.add_argument("--set", dest="changes", nargs="*", default=[], metavar="KEY=VALUE", help="for all trainings")
    parser.add_argument("--drawn", type=check_plot, metavar="FILE", help="draw the faithfulness of the small models")
    parser.add_argument("--drawn-included", type=check_plot, metavar="FILE", help="of the included models")
    given = parser.parse_args()
    if given.jobs < 1 or given.sentences < 2:
        parser.error("--jobs is at least 1, and --sentences at least 2: a short one and a longer one")
    for name in given.without:
        if name.rpartition(":")[2] not in METHODS:
            parser.error(f"--without: there is no method {name!r}; the methods are {', '.join(METHODS)}")
    for change in given.changes:
        if "=" not in change:
            parser.error(f"--set takes KEY=VALUE, as in train.steps=800; got {change!r}")
    drawn = {kind: path for kind, path in (("small", given.drawn), ("included", given.drawn_included)) if path}
    if (given.table or drawn) and not results(".*"):
        parser.error(f"there are no results in {OUT / 'results'}; run the jobs first, without --table and --drawn")
    if given.table or drawn:
        for name in given.table or []:
            TABLES[name]()
        for kind, path in drawn.items():
            draw_reach(path, kind)
        return 0
    every = list(jobs(given))
    try:
        wanted = select(every, given.only or [], given.but)
    except ConfigError as error:
        parser.error(str(error))
    limit = time.monotonic() + 60 * given.minutes
    write_text(given.data, given.sentences)
    print(f"{len(wanted)} of {len(every)} jobs, {given.jobs} at once", flush=True)
    with shared_gpu():
        left = run(wanted, every, given.jobs, limit)
    if left:
        print(f"Not done: {', '.join(left)}; see {OUT / 'logs'}.", flush=True)
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
