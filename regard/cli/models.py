"""regard models, export"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from regard.cli.options import Run
from regard.cli.progress import bar
from regard.cli.text import fitted, note_unfinished, put
from regard.errors import ConfigError, check_known, counted

Mirror = Annotated[str, Option(help="Address of another server than the Hub's or Mozilla's; see docs/interop.md.")]


def models(
    name: Annotated[str | None, Argument(help="Model, for its settings; or a trained model or run folder.")] = None,
    preset: Annotated[str | None, Option(help="Show the values of this preset (default: paper).")] = None,
    paths: Annotated[bool, Option("--paths", help="Show which code path every part takes, and why.")] = False,
    registry: Annotated[
        str | None, Option("--from", help="firefox: list the models that `regard import` can download from Mozilla.")
    ] = None,
    mirror: Mirror = "",
) -> None:
    """List the models and the included trained models. With a name: the settings of a model, or what a trained model or
    run folder expects, how it was trained, and its scores."""
    from regard.runs.included import FOLDERS

    if registry is not None or mirror:
        check_known("registry", registry or "", ("firefox",), " to list models from")
        if name is not None:
            raise ConfigError(f"--from lists all models of a registry; leave {name} out.")
        return list_firefox(mirror)

    trained = name is not None and ("/" in name or Path(name).is_dir() or name in FOLDERS)
    if preset is not None and (trained or name is None):
        raise ConfigError("--preset is for the settings of a model, such as `regard models bahdanau --preset tiny`.")
    preset = preset or "paper"
    if paths:
        from regard.api.loading import load
        from regard.kernels.explain import explain
        from regard.models.registry import build
        from regard.models.registry import preset as find_preset

        if name is None:
            raise ConfigError("--paths needs the name of a model or a run folder.")
        put(str(explain(load(name) if trained else build(name, find_preset(name, preset)))))
    elif name is None:
        list_models()
        list_shipped()
    elif trained:
        describe_run(name)
    else:
        describe_model(name, preset)


def list_models() -> None:
    """The models that can be trained, with their papers."""
    from regard.models.registry import MODELS, installed

    others = {known: package for known, package in installed().items() if known not in MODELS}
    name, paper = max(map(len, [*MODELS, *others])), max(len(found.paper) for found in MODELS.values())
    table = [f"{known:<{name}} {found.paper:<{paper}} {found.idea}" for known, found in MODELS.items()]
    table += [f"{known:<{name}} of the package {package}" for known, package in others.items()]
    each = [f"{known} ({found.paper}): {found.idea}" for known, found in MODELS.items()]
    each += [f"{known}: of the package {package}" for known, package in others.items()]
    put(fitted(table, each))
    put("\n`regard models NAME` lists the settings of a model.")


def describe_model(name: str, preset: str) -> None:
    """The settings of a model at the size of a preset, and its named variants."""
    from regard.config import describe
    from regard.models.registry import MODELS, entry, installed
    from regard.runs.experiment import resolve
    from regard.runs.included import FOLDERS, runs_in

    check_known("model", name, [*MODELS, *installed(), *FOLDERS, *runs_in(Path())])
    found, chosen = entry(name), resolve({"model": {"name": name, "preset": preset}})
    put(f"{name}: {found.idea} ({found.paper})\npresets: {', '.join(found.presets)}")
    put("vocabularies: training makes them from the corpus, with at most data.vocabulary tokens; their sizes replace "
        "those under [model]\n")  # fmt: skip
    sections = {f"model (preset {preset})": chosen.model, "train": chosen.train, "data": chosen.data}
    for title, config in {**sections, "decode": chosen.decode}.items():
        put(f"[{title}]")
        rows = [(f"{key} = {value}", meaning) for key, value, meaning in describe(config)]
        put(fitted([f"  {row[0]:<34} {row[1]}" for row in rows], map(": ".join, rows)))
        put("")
    plain = {key: value for key, value, _ in describe(found.presets.get("tiny", found.config))}
    if found.variants:
        put("[variants] of the preset tiny, and the settings that make them")
    for variant, config in found.variants.items():
        changed = (f"model.{key}={value}" for key, value, _ in describe(config) if value != plain[key])
        put(f"  {variant:<34} {' '.join(changed)}")


def list_shipped() -> None:
    """The trained models of this installation, with what their cards say."""
    from regard.api.exporting import about_run, read_card
    from regard.runs.included import shipped

    found = shipped()
    put("\nTrained models, used like run folders:" if found else "\nNo trained models are installed.")
    table, each = [], []
    for name, folder in found.items():
        card, expects = read_card(folder), about_run(folder).get("expects", {})
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        sides = f"{expects.get('source_language', '')} to {expects.get('target_language', '')}"
        scores = ", ".join(f"{score['name']} {score['small']['bleu']:.1f}" for score in card.get("scores", []))
        about = f"{sides}, {size:.1f} MiB" + (f"; BLEU: {scores}" if scores else "")
        table.append(f"{name:<16} {card.get('paper', ''):<36} {about}")
        each.append(f"{name} ({card.get('paper', '')}): {about}")
    if found:
        put(fitted(table, each))
        put("\n`regard models NAME` shows what a model expects and how it was trained.")


def describe_run(name: str) -> None:
    """Print what a run expects, how it was trained, and the scores of its card."""
    from regard.api.exporting import about_run, read_card
    from regard.api.loading import read_experiment
    from regard.api.progress import plain_number
    from regard.models.registry import entry
    from regard.runs.folder import find_weights
    from regard.runs.included import find_run

    folder = find_run(name)
    experiment, about, card = read_experiment(folder), about_run(folder), read_card(folder)
    put(f"{name}: {experiment.name} ({entry(experiment.name).paper}), task {experiment.task}")
    rows: list[tuple[str, Any]] = [("folder", folder)]
    rows.append(("weights", f"{find_weights(folder, check=()).stat().st_size / 2**20:.1f} MiB"))
    expects = about.get("expects")
    if expects:
        cases = {"lower": "lower case; input is lower-cased", "any": "capitals and small letters"}
        texts = {"raw": "raw text", "tokenised": "tokenised: punctuation is separate"}
        rows += [
            ("languages", f"{expects['source_language'] or '?'} to {expects['target_language'] or '?'}"),
            ("case", cases[expects["case"]]),
            ("text", texts[expects["text"]]),
            ("longest", f"{expects['longest']} tokens; a longer sentence is cut at clauses"),
            ("corpus", expects["corpus"]),
        ]
    if imported := about.get("imported"):
        known = [f"{imported[key]}" for key in ("from", "release", "revision", "architecture") if imported.get(key)]
        rows.append(("imported", ", ".join(known)))
    form = expects["form"] if expects else getattr(experiment.data, "form", "none")
    if form != "none":
        rows.append(("form", f"text is rewritten first (data.form={form})"))
    best = about.get("best")
    if best is not None:
        # The best checkpoint was chosen by the loss where nothing was translated or described.
        written = experiment.train.validate_sentences or experiment.task == "classify"
        by = experiment.train.best_by if written else "loss"
        shown = "below 1" if by == "bleu" and best == 0 else plain_number(best)  # such checkpoints are equal
        rows.append(("validation", f"{shown} ({by})"))
    if seconds := card.get("seconds") or about.get("seconds"):  # a card counts the runs before, too
        rows.append(("training", counted(round(seconds), "second")))
    rows += [(key, card[key]) for key in ("data", "licence") if key in card]
    rows += [("command", line) for line in card.get("commands", [])]
    for score in card.get("scores", []):
        small, full = score["small"], score.get("float")
        bleu, chrf = (f" (float32 {full[name]:.2f})" if full else "" for name in ("bleu", "chrf"))
        rows.append((score["name"], f"BLEU {small['bleu']:.2f}{bleu}, chrF {small['chrf']:.2f}{chrf}"))
    rows += [("bad at", line) for line in card.get("bad_at", [])]
    wide = max(len(key) for key, _ in rows)
    for key, value in rows:
        line = f"  {key:<{wide}}  {value}"
        put(line if key == "command" else fitted([line], [f"{key}: {value}"]))  # commands are not wrapped


def export(
    run: Run,
    out: Annotated[Path, Option(help="New folder to write into.")],
    to: Annotated[
        str, Option(help="small (int8 weights, no corpus and checkpoints), ctranslate2, onnx or huggingface.")
    ] = "small",
    numbers: Annotated[str | None, Option(help="ctranslate2: int8 (default) or float32.")] = None,
) -> None:
    """Export a run: `--to small` makes a folder of a few MiB that any regard command can use, the other formats are for
    other engines."""
    from regard.api.exporting import export as write

    if numbers is not None and to != "ctranslate2":
        raise ConfigError(f"--numbers is for --to ctranslate2; got --to {to}.")
    with bar("exporting"):
        size = write(run, out, to, numbers or "int8")
    note_unfinished(run)
    use = f"Use it like any run: regard models {out}" if to == "small" else "docs/interop.md shows how to use it."
    typer.echo(f"{out}: {size / 2**20:.1f} MiB. {use}", err=True)
    if to != "small":
        from regard.data.vocabulary import Vocabulary

        vocabulary = Vocabulary.load(run, "source")
        if vocabulary.form != "none" or vocabulary.lowercase:
            typer.echo(
                f"note: the model reads rewritten text (data.form={vocabulary.form}, data.lowercase="
                f"{str(vocabulary.lowercase).lower()}); tokenise with `encode` of the run, which does that.",
                err=True,
            )


def import_model(
    model: Annotated[
        str,
        Argument(
            help="Folder of a MarianMT model of transformers, or of Marian or Bergamot; a model of the Hugging Face "
            "Hub, such as Helsinki-NLP/opus-mt-en-de; or of Firefox, such as firefox:en-de."
        ),
    ],
    out: Annotated[Path, Option(help="New run folder to write.")],
    source_language: Annotated[str, Option(help="Code of the source language, such as en.")] = "",
    target_language: Annotated[str, Option(help="Code of the target language, such as pt.")] = "",
    mirror: Mirror = "",
) -> None:
    """Convert a translator of another toolkit into a run: OPUS-MT, Marian, or a model of Firefox."""
    from regard.api.importing import import_model as read

    with bar("importing") as progress:

        def report(done: int, total: int | None) -> None:
            progress(done >> 20, (total or 0) >> 20, "downloading (MiB)")

        size = read(model, out, source_language, target_language, mirror=mirror, progress=report)
    typer.echo(f"{out}: {size / 2**20:.1f} MiB. Use it like any run: regard translate {out}", err=True)


def list_firefox(mirror: str) -> None:
    """The models of Firefox's registry, one for each pair of languages."""
    from regard.interop.firefox import list_models

    found = list_models(mirror)
    languages = {code for one in found.values() for code in (one.source, one.target)}
    put(
        f"{counted(len(found), 'pair')} of {counted(len(languages), 'language')}: version, size of the download, kind\n"
    )
    for pair, one in found.items():
        put(f"{pair:<12} {one.version:<8} {one.size / 2**20:>6.1f} MiB  {one.architecture}".rstrip())
    some = next(iter(found), "en-de")
    put(f"\nImport one: regard import firefox:{some} --out runs/{some}")
