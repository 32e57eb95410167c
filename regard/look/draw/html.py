"""One self-contained page: opens from disk with the network off, and no token can break out of it.

The page's own script and style are allowed by their hashes and nothing else is: a strict Content-Security-Policy. The
trace lies in a JSON block in which `<`, `>` and `&` are escapes; the script puts every word into a text node.
"""

import base64
import hashlib
import html
from importlib import resources
from typing import Any

import numpy as np

from regard.errors import ConfigError
from regard.look import store
from regard.look.contents import KINDS, Attended, Contents
from regard.look.draw.palette import palette as find_palette
from regard.look.pieces import is_whole
from regard.look.text import label, visible
from regard.look.words import Head, Layer, arrange, choose, merge, right_to_left, sentence_of, tokens_of

_OPENS = {"matrix": "matrix", "ribbons": "ribbons", "heads": "heads", "beam": "beam", "steps": "step"}
_PRECISE = 500_000  # numbers; a larger trace is shown in half precision, without scores


def page(
    trace: Contents,
    view: str = "matrix",
    *,
    layer: Layer = None,
    head: Head = None,
    words: bool = True,
    special: bool = False,
    renormalise: bool = False,
    shift: int | None = None,
    palette: str = "blue",
    title: str | None = None,
    step: int | None = None,
) -> str:
    """The whole page as text; the options are where it opens, `step` of the view `steps` from 0."""
    if view == "beam" and trace.beam is None:
        raise ConfigError("This trace holds no search tree; look with beam search to get one.")
    opened: dict[str, Any] = {}
    if step is not None:
        opened, words, special, shift = _open_at(trace, layer, step, words, special)
    table = arrange(trace, layer, head, words, special, renormalise, shift)  # refuses what cannot be shown
    if not (head is None or isinstance(head, int | str)):
        raise ConfigError("A page shows one head, their mean or their largest; got several. Use head='mean'.")
    state = {
        "view": _OPENS[view],
        "module": list(trace.attention).index(choose(trace, layer).name),
        "head": 0 if choose(trace, layer).heads == 1 else "mean" if head is None else head,
        "words": words,
        "special": special,
        "renormalise": renormalise,
        "shift": table.shift,
        **opened,
    }
    data = {"state": state, "palette": find_palette(palette), **_data(trace)}
    here = resources.files("regard.look.draw")
    script, style = (here.joinpath(name).read_text(encoding="utf-8") for name in ("page.js", "page.css"))
    name, safe = title or _title(trace), _script_safe(store.write(data))
    body = (
        f'<main id="look">{heading(name)}<noscript>{html.escape(table.caption)}</noscript></main>\n'
        f'<script type="application/json" id="trace">{safe}</script>\n'
        f'<script type="module">{script}</script>\n'
    )
    return envelope(name, style, body, f"script-src '{digest(script)}'")


def _open_at(
    trace: Contents, layer: Layer, step: int, words: bool, special: bool
) -> tuple[dict[str, Any], bool, bool, int]:
    """The row of a step, among words where it begins one, with special tokens where it is one, and without a shift."""
    count = len(tokens_of(trace, KINDS[choose(trace, layer).kind][0]))
    if not is_whole(step) or not 0 <= step < count:
        raise ConfigError(f"There is no step {step}: this trace has steps 0 to {count - 1}.")
    for merged, every in ((words, special), (words, True), (False, True)):
        rows = arrange(trace, layer, None, merged, every, shift=0).rows
        found = [at for at, row in enumerate(rows) if row.tokens[0] == step]
        if found:
            break
    return {"t": found[0]}, merged, every, 0


def envelope(title: str, style: str, body: str, allowed: str = "") -> str:
    """A page that loads nothing and runs nothing but what its policy names: its own style, and what is `allowed`."""
    rules = ["default-src 'none'", allowed, f"style-src '{digest(style)}'", "base-uri 'none'", "form-action 'none'"]
    return (
        '<!doctype html>\n<html lang="und">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{"; ".join(rule for rule in rules if rule)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(visible(title))}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}</body>\n</html>\n"
    )


def heading(title: str) -> str:
    """The title as a heading."""
    return f'<h1 dir="auto">{html.escape(visible(title))}</h1>'


def frame(page: str, height: int = 640) -> str:
    """A page for a notebook, alone in a frame: its style and script touch nothing outside."""
    return (
        f'<iframe srcdoc="{html.escape(page, quote=True)}" sandbox="allow-scripts" title="attention" '
        f'style="width:100%;height:{height}px;border:0"></iframe>'
    )


def digest(text: str) -> str:
    """What a Content-Security-Policy calls this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _script_safe(text: str) -> str:
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _title(trace: Contents) -> str:
    return f"{label(trace.source.text, 60)} → {label(trace.target.text, 60)}"


def _data(trace: Contents) -> dict[str, Any]:
    sides = {side for seen in trace.attention.values() for side in KINDS[seen.kind]}
    count = sum(seen.weights.size for seen in trace.attention.values())
    beam = trace.beam
    return {
        "modules": [_module(trace, seen, count <= _PRECISE) for seen in trace.attention.values()],
        "sides": {side: _side(trace, side) for side in sorted(sides)},
        "right_to_left": right_to_left([token.text for token in trace.source.tokens]),
        "changes": [f"changed: {visible(str(change['text']))}" for change in trace.changes],
        "beam": None
        if beam is None
        else {
            "size": beam.size,
            "ranked": beam.ranked,
            "nodes": [{**vars(node), "token": visible(node.token)} for node in beam.nodes],
        },
    }


def _module(trace: Contents, seen: Attended, precise: bool) -> dict[str, Any]:
    rows, columns = KINDS[seen.kind]
    several = sum(each.kind == seen.kind for each in trace.attention.values()) > 1
    with np.errstate(over="ignore"):
        weights = seen.weights if precise else seen.weights.astype(np.float16).astype(np.float32)
    about = f"{seen.kind} attention" + (f" ({seen.score})" if seen.score else "")
    return {
        "label": visible(f"layer {seen.layer} {seen.kind}" if several else seen.name),
        "about": visible(about),
        "rows": rows,
        "columns": columns,
        "shape": seen.weights.shape,
        "weights": weights,
        "scores": seen.scores if precise else None,
        "norms": None if seen.context_norms is None else np.round(seen.context_norms.astype(float), 4).tolist(),
        "query": seen.query,
        "shift": seen.shift,
        "score": visible(seen.score) if seen.score else "",
        "normalise": visible(seen.normalise),
    }


def _side(trace: Contents, side: str) -> dict[str, Any]:
    tokens = tokens_of(trace, side)
    words = merge(tokens, range(len(tokens)), sentence_of(trace, side), words=True)
    return {
        "tokens": [
            {
                "text": label(token.text, 60),
                "special": token.special,
                "logprob": token.logprob,
                "topk": [{"text": label(text, 60), "logprob": logprob} for text, logprob in token.topk],
            }
            for token in tokens
        ],
        "words": [{"text": label(one.text, 60), "tokens": one.tokens, "special": one.special} for one in words],
    }
