"""A trace: what a model computed while it wrote one sentence, as data that can be kept, drawn and measured.

It has the tokens of both sides, and the scores and weights of each head of every attention module. It does not depend
on a model: `from_arrays` makes one from any numbers, `from_huggingface` from the outputs of another library.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from regard.errors import check_known
from regard.look import html, trace_file
from regard.look.draw import terminal
from regard.look.record import cross_attentions, self_attentions
from regard.look.table import CAPTION_VIEWS, PAGE, TERMINAL, VIEWS, Show, chosen
from regard.look.tokens import Side, Token, as_side
from regard.look.trace_data import Attended, Contents, as_array

FROM_ARRAYS = ("beam", "image", "kind", "model", "normalise", "query", "score", "shift")  # settings of `from_arrays`


@dataclass(frozen=True, eq=False)
class Trace(Contents):
    """What a model computed while it wrote one sentence: the tokens of both sides, all attention scores and weights.

    `source.tokens` and `target.tokens` have text, place and, for the target, log-probability and alternatives;
    `attention[name].weights` is a numpy array [H, T, S]. `Translator.look` makes one.

    >>> trace = regard.Trace.from_arrays(["the", "cat"], ["le", "chat"], [[0.9, 0.1], [0.2, 0.8]])
    >>> trace
    Trace('the cat' -> 'le chat'; weights of attention [1, 2, 2])
    >>> [token.text for token in trace.target.tokens], trace.attention["attention"].weights[0, 1].round(1).tolist()
    (['le', 'chat'], [0.2..., 0.8...])
    >>> trace.draw("cat.svg").name
    'cat.svg'
    >>> regard.Trace.load(trace.save("cat.json.gz")) == trace
    True
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {list(seen.weights.shape)}" for name, seen in self.attention.items())
        return f"Trace({self.source.text!r} -> {self.target.text!r}; weights of {shapes})"

    # --- written and read back without loss

    def to_json(self) -> str:
        """The trace as one line of JSON in the format of `regard.look.trace_file`; nothing is rounded.

        >>> import json
        >>> list(json.loads(trace.to_json()))
        ['trace', 'model', 'source', 'target', 'attention']
        """
        return trace_file.write(trace_file.plain(self))

    @classmethod
    def from_json(cls, text: str) -> "Trace":
        """A trace from its JSON; a clear error for another version or a malformed text.

        >>> regard.Trace.from_json(trace.to_json()) == trace
        True
        """
        return cls(**trace_file.fields(trace_file.read(text)))

    def save(self, path: str | Path) -> Path:
        """Write the trace to `path`, whole or not at all; a name ending in .gz is compressed.

        >>> trace.save("cat.json.gz").name
        'cat.json.gz'
        """
        return trace_file.save(self.to_json(), Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Trace":
        """A trace from a file that `save` wrote, compressed or not.

        >>> regard.Trace.load(trace.save("cat.json"))
        Trace('the cat' -> 'le chat'; weights of attention [1, 2, 2])
        """
        return cls.from_json(trace_file.load(Path(path)))

    # --- other people's models

    @classmethod
    def from_arrays(
        cls,
        source: "Side | Sequence[str | Token]",
        target: "Side | Sequence[str | Token]",
        weights: ArrayLike | Mapping[str, ArrayLike],
        scores: ArrayLike | Mapping[str, ArrayLike] | None = None,
        **settings: Any,
    ) -> "Trace":
        """A trace of any numbers: tokens, and weights [T, S], [H, T, S] or [L, H, T, S], or a mapping.

        Tokens are strings (the marks of sentencepiece, byte-level, BERT and subword-nmt pieces are understood) or
        `Token`s; a mapping gives module names their weights. `settings` are those of `Attended` (kind, query, shift,
        score, normalise) for every module, and `model`, `beam`, `image` of the trace.

        >>> heads = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]]]  # [H, T, S]
        >>> regard.Trace.from_arrays(["▁the", "▁cat"], ["▁le", "▁chat"], {"decoder.cross_attention": heads})
        Trace('the cat' -> 'le chat'; weights of decoder.cross_attention [2, 2, 2])
        """
        for name in sorted(settings):
            check_known("setting", name, FROM_ARRAYS, " of from_arrays")
        whole = {key: settings.pop(key) for key in ("model", "beam", "image") if key in settings}
        named, named_scores = _named(weights), _named(scores) if scores is not None else {}
        for name in named_scores:
            check_known("module", name, named, " with weights for the scores of that name")
        attention = {
            name: Attended(name, array, layer=layer, scores=named_scores.get(name), **settings)
            for layer, (name, array) in enumerate(named.items())
        }
        return cls(as_side(source), as_side(target), attention, **whole)

    @classmethod
    def from_huggingface(
        cls,
        outputs: Any,
        source: "Side | Sequence[str | Token]",
        target: "Side | Sequence[str | Token] | None" = None,
        row: int = 0,
    ) -> "Trace":
        """A trace from a model of transformers: outputs of a forward pass or of `generate`, and token strings.

        Pass output_attentions=True (and for `generate` return_dict_in_generate=True). `target` are the tokens that
        were predicted, in order, or `generate`'s sequence as it comes, with the start symbol and the padding. A model
        without an encoder (GPT) has no `target`: `source` are all its tokens, of which the first stands as the start.

        >>> layer = torch.full((1, 4, 2, 3), 1 / 3)  # [B, H, T, S]
        >>> outputs = {"cross_attentions": (layer, layer)}  # those of a model of transformers hold more
        >>> regard.Trace.from_huggingface(outputs, ["▁the", "▁cat", "</s>"], ["▁chat", "</s>"])
        Trace('the cat' -> 'chat'; weights of layers.0 [4, 2, 3], layers.1 [4, 2, 3])
        """
        about: dict[str, Any] = {"score": "scaled dot", "model": {"id": "", "kind": "transformer"}}
        if target is None:
            tokens, layers = as_side(source).tokens, self_attentions(outputs, row)  # [L, H, T, T]
            predicted = tokens[1:]
            layers = layers[..., : len(predicted), : len(predicted)]  # what follows the last token is not known
            return cls.from_arrays([], predicted, layers, kind="decoder", **about)
        layers = cross_attentions(outputs, row)  # [L, H, T, S]
        words = as_side(target)
        if len(words.tokens) > layers.shape[2]:
            words = as_side(words.tokens[1 : layers.shape[2] + 1])
        return cls.from_arrays(source, words, layers, **about)

    # --- pictures

    def draw(
        self, path: str | Path | None = None, view: str | None = None, show: Show | None = None, **options: Any
    ) -> Path | html.Page:
        """Draw into a .png, .svg, .pdf or .html file; `view` is matrix, ribbons, heads, beam, steps, and for captions
        film, picture or region. None is the matrix, or the film of a caption.

        The options are those of `regard.look.Show`, as a `Show` or by name: draw("a.png", layer=2, head=0). Without a
        path this is `to_html`.

        >>> trace.draw("cat.svg", palette="viridis", title="A cat").name
        'cat.svg'
        >>> trace.draw("cat.html", view="ribbons").name
        'cat.html'
        """
        name = self._view(view)

        def picture(ending: str) -> bytes:
            from regard.look.draw import still  # matplotlib is imported only when a still picture is drawn

            wanted = chosen(show, options, (*VIEWS[name], "dpi", "view"), f"the {name} view")
            return still.render(self, ending, name, wanted)

        return html.draw_into(path, lambda: self.to_html(name, show, **options), picture)

    def to_terminal(self, show: Show | None = None, **options: Any) -> str:
        """The matrix, or a caption's maps, as text for a terminal: coloured blocks, or ASCII. By default, `colour` is
        True if standard output is a terminal and NO_COLOR is not set.

        Below the matrix are model-specific values, such as the coverage of the source words.

        >>> print(trace.to_terminal(colour=False))
               t   c
               h   a
               e   t
          le @90 .10
        chat :20 %80
        weights: 0 [ .:-=+*#%@] 1, numbers are hundredths
        cross-attention, tokens
        """
        view = self._view(None)
        wanted = chosen(show, options, TERMINAL[view], "a trace in a terminal")
        if view != "matrix":
            return terminal.film(self, wanted)
        return terminal.matrix(self, wanted)

    def to_html(self, view: str | None = None, show: Show | None = None, **options: Any) -> html.Page:
        """One self-contained HTML page that opens at `view`, as on the page of `regard serve`; a notebook shows it.

        >>> trace.to_html("ribbons", mass=0.5)
        <a page of ... KiB; a notebook shows it, str() gives its HTML>
        """
        view = self._view(view)
        known = VIEWS[view] if view in CAPTION_VIEWS else dict.fromkeys((*VIEWS[view], *PAGE))
        return html.page(self, view, chosen(show, options, (*known, "view"), f"the {view} page"))

    def _view(self, view: str | None) -> str:
        chosen = ("matrix" if self.image is None else "film") if view is None else view
        check_known("view", chosen, VIEWS)
        return chosen

    def _repr_html_(self) -> str:
        return self.to_html()._repr_html_()


def _named(arrays: Any) -> dict[str, Any]:
    if isinstance(arrays, Mapping):
        return {str(name): array for name, array in arrays.items()}
    array = as_array(arrays)
    if array.ndim == 4:
        return {f"layers.{layer}": part for layer, part in enumerate(array)}
    return {"attention": array}
