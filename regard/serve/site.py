"""The page without a server: a folder of static files that translates and looks inside in the visitor's browser.

    index.html, sw.js          the page, and what keeps its files for the next visit
    page/                      its modules: the views and the shell of the server's page, and those of serve/site, where
                               api.js takes the place of the server; constants.js holds lists of the Python package
    files/index.json           the models, and the size and SHA-256 of every other file in it
    files/runtime.bin          the WebAssembly of onnxruntime-web
    files/MODEL/*.bin          what the page must know of a model, its graphs and its weights, each compressed by gzip

All addresses are relative. The files in `files` have an ending that no host treats in a special way.
"""

import dataclasses
import gzip
import hashlib
import json
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from regard.api.drafts import CURRENCIES, NUMBERS, SMALL
from regard.api.flags import LOOKS, NOTES, SPELLED, WORDED
from regard.api.tracing import name_of
from regard.core.normalise import Causal
from regard.data.subwords import Subwords
from regard.data.vocabulary import Vocabulary
from regard.errors import ConfigError, RunError
from regard.evaluate.confidence import SURE
from regard.files.segment import SYMBOL
from regard.look import html, table
from regard.look.attribution import DRAWN
from regard.look.record import attentions, layer_of, side_of
from regard.look.trace_data import BY, HIDING, KINDS
from regard.models.contract import attentions_to_source
from regard.runs.folder import find_weights
from regard.runs.included import find_run
from regard.runs.int8 import check_new
from regard.sealed import fill_folder
from regard.serve import languages
from regard.serve.app import FOLDERS
from regard.serve.graphs import export_graphs
from regard.serve.inside import adds, layers_of
from regard.serve.limits import Limits
from regard.serve.loading import load_model
from regard.serve.models import TranslationModel
from regard.text import languages as common
from regard.text import normalise, sentences, visible

MODULES = Path(__file__).parent / "site"
LEFT_OUT = ("docs.html", "docs.js", "caption.js")  # of the server's page: what needs a server
RUNTIME = "onnxruntime-web"
VERSION = "1.30.0"
FILES = {  # of the npm package -> name in the site, SHA-256
    "ort.wasm.bundle.min.mjs": ("ort.mjs", "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90"),
    "ort-wasm-simd-threaded.wasm": ("runtime", "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2"),
}
KEPT = "addresses, placeholders and symbols are translated as words here; `regard translate` keeps them as they are"
METHODS = "attention", "occlusion-masked", "occlusion-unknown", "occlusion-removed"  # that need only forced passes
OTHER_METHODS = "other methods need Python (regard serve)"
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)


def build_site(
    runs: Sequence[str | Path], out: Path, runtime: Path | None = None, progress: Callable[[str], None] | None = None
) -> int:
    """Write the page with the translators `runs` into the new folder `out`; returns its size in bytes.

    `runtime` is the folder of the npm package onnxruntime-web; by default it is searched in node_modules here and in
    the folders above. `progress` is called with the name of each run before it is exported.
    """
    check_new(out)
    parts = read_runtime(runtime)
    with fill_folder(out) as folder, TemporaryDirectory() as temporary:
        page, files = folder / "page", folder / "files"
        page.mkdir()
        files.mkdir()
        listed: dict[str, dict[str, Any]] = {}

        def add(name: str, data: bytes) -> None:
            """A file that the page loads with a bar and keeps."""
            packed = data if data[:2] == b"\x1f\x8b" else gzip.compress(data, 9, mtime=0)
            (files / name).parent.mkdir(exist_ok=True)
            (files / name).write_bytes(packed)
            listed[name] = {"bytes": len(packed), "sha256": hashlib.sha256(packed).hexdigest()}

        for name, data in parts.items():
            if name == "runtime":
                add("runtime.bin", data)
            else:
                (page / name).write_bytes(data)
        models: list[dict[str, Any]] = []
        for number, run in enumerate(runs):
            if progress:
                progress(str(run))
            work = Path(temporary) / str(number)
            work.mkdir()
            plain = describe_model(run, work)
            if plain["id"] in (one["id"] for one in models):
                raise RunError(f"Two of the runs have the name {plain['id']}; rename the folder of one of them.")
            models.append(plain["about"])
            add(f"{plain['id']}/model.bin", json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode())
            for path in sorted(work.iterdir()):
                add(f"{plain['id']}/{path.stem}.bin", path.read_bytes())
        for path in [path for place in (MODULES, *FOLDERS) for path in sorted(place.iterdir())]:
            if (
                path.is_file()
                and path.name not in (*LEFT_OUT, "sw.js", "index.html")
                and not (page / path.name).exists()
            ):
                (page / path.name).write_bytes(path.read_bytes())
        (page / "constants.js").write_text(f"export default {_json(constants())};\n", "utf-8")
        (page / "file.html").write_text(html.file(), "utf-8")
        (folder / "index.html").write_text(_index(), "utf-8")
        (folder / ".nojekyll").write_bytes(b"")  # GitHub Pages serves the files as they are
        index = {"models": models, "files": listed, "limits": {"characters": Limits().characters}}
        (files / "index.json").write_text(_json(index) + "\n", "utf-8")
        every = sorted(path for path in folder.rglob("*") if path.is_file())
        version = hashlib.sha256(b"".join(path.read_bytes() for path in every)).hexdigest()[:16]
        small = [path.relative_to(folder).as_posix() for path in every if path.suffix != ".bin"]
        worker = (MODULES / "sw.js").read_text("utf-8")
        (folder / "sw.js").write_text(
            f"const VERSION = {_json(version)};\nconst FILES = {_json(small)};\n{worker}", "utf-8"
        )
        return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_runtime(runtime: Path | None) -> dict[str, bytes]:
    """The files of onnxruntime-web by their names in the site, each checked."""
    here = Path.cwd()
    places = [runtime] if runtime else [one / "node_modules" / RUNTIME for one in (here, *here.parents)]
    for place in places:
        if not (place / "package.json").is_file():
            continue
        found = {}
        for name, (written, digest) in FILES.items():
            path = place / "dist" / name
            data = path.read_bytes() if path.is_file() else b""
            if hashlib.sha256(data).hexdigest() != digest:
                raise RunError(
                    f"{path} is not that of {RUNTIME} {VERSION}; install it with `npm install {RUNTIME}@{VERSION}`."
                )
            found[written] = data
        return found
    where = f"{runtime} is not a folder of the npm package {RUNTIME}" if runtime else f"{RUNTIME} is not installed here"
    raise RunError(
        f"{where}, which runs the models in the browser; run `npm install {RUNTIME}@{VERSION}` in this folder, or name "
        f"the folder of the package with --runtime."
    )


def _index() -> str:
    page = (FOLDERS[0] / "index.html").read_text("utf-8")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />'
    page = page.replace('<meta charset="utf-8" />', f'<meta charset="utf-8" />\n    {policy}')
    page = page.replace(
        '    <script type="module"',
        '    <link rel="stylesheet" href="page/site.css" />\n    <script src="page/started.js"></script>\n'
        '    <script type="module"',
    )
    said = "This page needs JavaScript and WebAssembly: it runs the model in your browser."
    begin, end = page.index("<noscript>") + len("<noscript>"), page.index("</noscript>")
    return (page[:begin] + said + page[end:]).replace('"/page/', '"page/')


# --- a model


def describe_model(run: str | Path, out: Path) -> dict[str, Any]:
    """Write the graphs and weights of a run into the folder `out`; returns what else the page must know of it."""
    folder = find_run(run)
    served = load_model(str(folder), Limits())
    if not isinstance(served, TranslationModel):
        raise RunError(f"{run} is not a translator; the page without a server shows translators only.")
    translator = served.translator
    config, model = translator.experiment.decode, translator.model
    for name in ("coverage_penalty", "temperature"):
        if getattr(config, name):
            raise ConfigError(
                f"{run} has decode.{name} = {getattr(config, name):g}, which the page without a server does not know; "
                f"set it to 0 in the run."
            )
    about = served.describe()
    for side in ("source", "target"):
        about[side]["name"] = languages.name(about[side]["code"])
    about["methods"] = [name for name in about["methods"] if name in METHODS]
    about["other_methods"] = OTHER_METHODS
    vocabularies = {side: getattr(translator, f"{side}_vocabulary") for side in ("source", "target")}
    if len({one.fingerprint for one in vocabularies.values()}) == 1:
        del vocabularies["target"]
    layout: Any = model.attention_layout
    cross = attentions_to_source(model)
    never: Any = SimpleNamespace(stopped=lambda: False)  # a call that nobody stops
    return {
        "id": served.id,
        "name": translator.name,
        "kind": type(model).__name__.lower(),
        "about": about,
        "about_trace": translator.about,
        "source_language": translator.source_language,
        "target_language": translator.target_language,
        "lowercases": translator.lowercases,
        "decode": dataclasses.asdict(config),
        "max_length": translator.experiment.data.max_length,
        "longest": getattr(model, "longest", None),
        "heads": dataclasses.asdict(translator.heads),
        "layout": {
            "query": layout.query,
            "shift": layout.shift,
            "key_heads": layout.key_heads,
            "layers": len(cross),
        },
        "attention": {
            name: _describe_module(name, module, name in cross) for name, module in attentions(model).items()
        },
        "layers": {
            kind: [adds(layer) for layer in layers_of(model, kind == "decoder")] for kind in ("encoder", "decoder")
        },
        "confidence": translator.calibration and translator.calibration.as_data()["word"],
        "errors": served.head_errors(never) if about["aligned"] else None,
        "vocabularies": {side: _describe_vocabulary(one, run) for side, one in vocabularies.items()},
        "graphs": export_graphs(model, find_weights(folder), out),
    }


def _describe_module(name: str, module: Any, cross: bool) -> dict[str, Any]:
    return {
        "kind": "cross" if cross else side_of(name),
        "layer": layer_of(name),
        "score": name_of(module.score),
        "normalise": name_of(module.normalise),
        "hides": name_of(module.normalise) in HIDING and not isinstance(module.normalise, Causal),
        "half_width": int(getattr(module.normalise, "half_width", 0)),
    }


def _describe_vocabulary(vocabulary: Vocabulary, run: str | Path) -> dict[str, Any]:
    found = {"kind": vocabulary.kind, "form": vocabulary.form, "lowercase": vocabulary.lowercase}
    tokens = vocabulary.tokens
    if isinstance(tokens, Subwords):
        # Vocabularies of imported models may normalise text differently.
        probe = "\u00a0 a\u0301\ufb01 "
        if tokens.processor.normalize(probe) != "\u2581" + probe.replace(" ", "\u2581"):
            raise ConfigError(f"The vocabulary of {run} normalises text, which the page without a server cannot do.")
        found["scores"] = [tokens.processor.get_score(index) for index in range(len(tokens))]
    return {**found, "pieces": tokens.pieces}


# --- lists that both sides read


def constants() -> dict[str, Any]:
    """Lists of words and characters, wordings and limits, for the modules in serve/site."""
    limits = Limits()
    return {
        "combining": ranges(lambda character: bool(unicodedata.combining(character))),
        "digits": ranges(str.isdigit),
        "marks": normalise.ASCII,
        "quotes": normalise.QUOTE_MARKS,
        "sentences": {
            "marks": sentences.MARKS,
            "wide": "".join(sorted(sentences.WIDE)),
            "months": sentences.MONTHS,
            "abbreviations": sorted(sentences.ABBREVIATIONS),
            "numbered": sorted(sentences.NUMBERED),
        },
        "languages": {
            "words": {code: sorted(words) for code, words in common.WORDS.items()},
            "names": common.IN_NAMES.split(),
            "called": common.NAMES,
        },
        "symbol": SYMBOL.pattern,
        "numbers": NUMBERS,
        "small": SMALL,
        "currencies": CURRENCIES,
        "units": WORDED,
        "spelled": SPELLED,
        "notes": {**NOTES, "kept": KEPT},
        "looks": LOOKS,
        "limits": {
            name: getattr(limits, name)
            for name in ("characters", "line", "tokens", "tree", "changes", "numbers", "beam")
        },
        "sure": SURE,
        "drawn": {
            "by": BY,
            "shares": DRAWN,
            "kinds": KINDS,
            "precise": html.PRECISE,
            "equal": table.EQUAL,
            "ramps": html.ramps(),
            "wide": ranges(lambda one: unicodedata.east_asian_width(one) in "WF" and unicodedata.category(one) == "Lo"),
            "right": ranges(lambda one: unicodedata.bidirectional(one) in ("R", "AL")),
            "left": ranges(lambda one: unicodedata.bidirectional(one) == "L"),
            "texts": {
                "summaries": table.SUMMARIES,
                "shifted": table.SHIFTED,
                "papers": table.PAPERS,
                "kinds": table.KIND_WORDS,
                "apostrophes": table.APOSTROPHES,
                "endings": sorted(table.ENDINGS),
                "names": visible.NAMES,
                "joiners": visible.JOINERS,
                "printed": ranges(lambda one: ord(one) in visible.PRINTED),
            },
        },
    }


def ranges(test: Callable[[str], bool]) -> list[int]:
    """The code points of a test as ranges: [first, last, first, last, ...]"""
    found: list[int] = []
    for code in range(0x110000):
        if test(chr(code)):
            if found and found[-1] == code - 1:
                found[-1] = code
            else:
                found += [code, code]
    return found
