"""CTranslate2: export a Transformer to a faster engine, and search with it.

All weights are copied, since the converter quantises in place. The engine returns the attention of its first head; any
head can be moved there, together with its columns of the output matrix.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.vocabulary import Vocabulary
from regard.decode.hypothesis import Hypothesis, rank
from regard.decode.search import by_length
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, RunError, need
from regard.interop.imported import check_exported
from regard.sealed import fill_folder
from regard.symbols import END, PAD, START, SYMBOLS, UNKNOWN
from regard.work import Progress, reporting

LONGEST = 1024  # positions in the tables that replace a formula
TYPES = ("int8", "float32")
ACTIVATIONS = {"relu": "RELU", "swish": "SWISH", "gelu": "GELU"}  # our names -> the engine's
KNOWN: dict[str, tuple[object, ...]] = {  # the settings of a Transformer that can be exported
    "positions": ("sinusoid", "learned", "rotary"),
    "decoder": ("attention",),
    "activation": tuple(ACTIVATIONS),
    "layer_norm": ("layer",),
    "key_heads": (0,),
    "score": ("scaled-dot",),
    "normaliser": ("softmax",),
}
NEVER = -1e9  # the logit of a token that must not be written
BATCH_TOKENS = 4096  # source tokens in a batch over all beams, as in regard's own search


class Engine(NamedTuple):
    """A converted model in memory; `search` replaces regard's own."""

    translator: Any  # ctranslate2.Translator: each thread takes a part of a batch, without waiting for others
    source: list[str]  # the pieces by their ids
    target: dict[str, int]  # the ids of the pieces
    longest: int

    def search(
        self,
        rows: Sequence[Sequence[int]],
        config: DecodeConfig,
        *,
        prefixes: Sequence[Sequence[int]] | None = None,
        progress: Progress | None = None,
        stop: Callable[[], bool] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each row of source ids (without END), like `decode_many`.

        The engine does not return log-probabilities of single tokens, so `token_logprobs` is empty. It distributes the
        probability of PAD and START, tiny in a trained model, among the other tokens. `stop` is called before every
        batch.
        """
        for name, off in (("temperature", 0), ("coverage_penalty", 0), ("patient", False), ("precision", "float32")):
            if getattr(config, name) != off:
                raise ConfigError(
                    f"The engine ctranslate2 does not support decode.{name}; leave it out, or use --engine regard."
                )
        found: list[list[Hypothesis]] = [[] for _ in rows]
        longest = max(map(len, rows), default=0)
        if longest >= self.longest:
            raise ConfigError(
                f"This engine reads at most {self.longest - 1} tokens; got {longest}. Split the text, or use --engine "
                f"regard."
            )
        for some in reporting(by_length(rows, BATCH_TOKENS // config.beam), progress, len(rows), len):
            begins = None if prefixes is None else [prefixes[row] for row in some]
            stopped = stop is not None and stop()
            results = [] if stopped else self._batch([rows[row] for row in some], config, begins)
            for number, row in enumerate(some):
                found[row] = [Hypothesis([], 0.0, 0.0, "stopped", [])] if stopped else results[number]
        return found

    def _batch(
        self, rows: list[Sequence[int]], config: DecodeConfig, prefixes: list[Sequence[int]] | None
    ) -> list[list[Hypothesis]]:
        words, names = [[self.source[index] for index in row] for row in rows], list(self.target)
        longest = max(int(config.max_ratio * len(row)) + config.max_extra for row in rows)
        # Return all hypotheses of the beam with plain log-probabilities; regard applies its own length penalty.
        results = self.translator.translate_batch(
            words,
            None if prefixes is None else [[names[index] for index in row] for row in prefixes],
            beam_size=config.beam,
            num_hypotheses=config.beam,
            length_penalty=0.0,
            return_scores=True,
            return_end_token=True,
            no_repeat_ngram_size=config.no_repeat_ngram,
            disable_unk=config.ban_unknown,
            min_decoding_length=config.min_length,
            max_decoding_length=max(1, min(longest, self.longest)),
            max_input_length=0,
            max_batch_size=-(-len(rows) // self.translator.num_translators),
        )
        found = []
        for sentence, one in zip(words, results, strict=True):
            scores = one.scores if prefixes is None else self._scores(sentence, one.hypotheses)
            hypotheses = []
            for pieces, logprob in zip(one.hypotheses, scores, strict=True):
                ids = [self.target[piece] for piece in pieces]
                ended = bool(ids) and ids[-1] == END
                score = logprob / config.penalty(max(1, len(ids)))
                ids = ids[:-1] if ended else ids
                hypotheses.append(Hypothesis(ids, logprob, score, "end" if ended else "length", []))
            found.append(rank(hypotheses)[: config.nbest] if sentence else [Hypothesis([], 0.0, 0.0, "end", [])])
        return found

    def _scores(self, source: list[str], hypotheses: list[list[str]]) -> list[float]:
        """The log-probability of each hypothesis, including the forced prefix, which the search does not count."""
        ends = [one[-1:] == [SYMBOLS[END]] for one in hypotheses]
        plain = [one[:-1] if end else one for one, end in zip(hypotheses, ends, strict=True)]
        scored = self.translator.score_batch([source] * len(plain), plain)
        return [sum(one.log_probs if end else one.log_probs[:-1]) for one, end in zip(scored, ends, strict=True)]


def open_engine(model: nn.Module, source: Vocabulary, target: Vocabulary, threads: int, kind: str = "int8") -> Engine:
    """Convert a Transformer in a temporary folder and load it."""
    library, before = _library(), torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="regard-") as folder:
        _save(model, source, target, Path(folder) / "model", kind, never=(PAD, START))
        path = str(Path(folder) / "model")
        translator = library.Translator(path, compute_type=kind, inter_threads=threads, intra_threads=1)
    torch.set_num_threads(before)  # the engine changes them for the whole process
    return Engine(translator, source.pieces(range(len(source))), target.numbers, _positions(model))


def export_ctranslate2(
    model: nn.Module, source: Vocabulary, target: Vocabulary, out: Path, kind: str, head: tuple[int, int] = (-1, 0)
) -> int:
    """Write the new folder `out`; the engine will return the attention of `head` (layer, head)."""
    with fill_folder(out) as folder:
        _save(model, source, target, folder, kind, head)
        return sum(path.stat().st_size for path in folder.iterdir())


def _library() -> Any:
    return need("ctranslate2", "CTranslate2 is not installed; install it: pip install 'regard[fast]'.", RunError)


def _positions(model: nn.Module) -> int:
    return getattr(model, "longest", None) or LONGEST


def _save(
    model: Any, source: Vocabulary, target: Vocabulary, folder: Path, kind: str, head: tuple[int, int] = (-1, 0),
    never: Sequence[int] = (),
) -> None:  # fmt: skip
    """Write a model for the engine. Tokens in `never` get a bias, which is faster than suppressing them in search."""
    library = _library()
    check_exported(model, "CTranslate2", KNOWN)
    if kind not in TYPES:
        raise ConfigError(f"The type of a CTranslate2 model must be {' or '.join(TYPES)}; got {kind!r}.")
    specification = _specification(model, library.specs, head)
    if never:
        output = specification.decoder.projection
        output.bias = np.zeros(len(target), np.float32) if model.output.bias is None else output.bias
        output.bias[list(never)] = NEVER
    specification.register_source_vocabulary(source.pieces(range(len(source))))
    specification.register_target_vocabulary(target.pieces(range(len(target))))
    specification.config.unk_token = SYMBOLS[UNKNOWN]
    specification.config.bos_token = specification.config.decoder_start_token = SYMBOLS[START]
    specification.config.eos_token, specification.config.add_source_eos = SYMBOLS[END], True
    specification.config.layer_norm_epsilon = 1e-5
    specification.validate()
    specification.optimize(quantization=None if kind == "float32" else kind)
    folder.mkdir(parents=True, exist_ok=True)
    specification.save(str(folder))


def _specification(model: Any, specs: Any, head: tuple[int, int]) -> Any:
    """The model as a CTranslate2 specification."""
    config, depth = model.config, len(model.decoder)
    rotary = {"rotary_dim": 0, "rotary_interleave": True} if config.positions == "rotary" else {}
    options = {
        "num_heads": config.heads,
        "pre_norm": config.norm == "pre",
        "activation": getattr(specs.Activation, ACTIVATIONS[config.activation]),
        **rotary,
    }
    encoder = specs.TransformerEncoderSpec(config.layers, **options)
    decoder = specs.TransformerDecoderSpec(depth, **options, alignment_layer=head[0] % depth, alignment_heads=1)
    encoder.embeddings[0].weight = _array(model.embed.weight)
    decoder.embeddings.weight = _array(model.embed_target.weight)
    _linear(decoder.projection, model.output)
    place = torch.arange(_positions(model))
    zeros = torch.zeros(1, len(place), config.width)
    with torch.no_grad():  # rotary positions rotate queries and keys instead
        table = _array(zeros[0] if config.positions == "rotary" else model.place(zeros, place)[0][0])  # [positions, D]
    encoder.position_encodings.encodings = table
    if config.positions != "rotary":
        decoder.position_encodings.encodings = table.copy()
    for spec, layer in zip(encoder.layer, model.encoder, strict=True):
        _layer(spec, layer)
    for number, (spec, layer) in enumerate(zip(decoder.layer, model.decoder, strict=True)):
        _layer(spec, layer)
        cross = layer.cross_attention
        # The dimensions of all heads, those of the head whose weights are returned first.
        first = head[1] if number == head[0] % depth else 0
        heads = [first, *(other for other in range(config.heads) if other != first)]
        order = torch.arange(config.width).view(config.heads, -1)[heads].flatten()  # [D]
        query, memory, output = spec.attention.linear
        _linear(query, cross.query, order)
        _linear(memory, cross.project, torch.cat([order, order + config.width]))
        _linear(output, cross.output)
        output.weight = _array(cross.output.weight[:, order])
        _norm(spec.attention.layer_norm, layer.join_cross.norm)
    if config.norm == "pre":
        _norm(encoder.layer_norm, model.encoder_norm)
        _norm(decoder.layer_norm, model.decoder_norm)
    return specs.TransformerSpec(encoder, decoder)


def _layer(spec: Any, layer: Any) -> None:
    attention = layer.self_attention
    _linear(spec.self_attention.linear[0], attention.project)
    _linear(spec.self_attention.linear[1], attention.output)
    _norm(spec.self_attention.layer_norm, layer.join_self.norm)
    inner, _, outer = layer.feed_forward
    _linear(spec.ffn.linear_0, inner)
    _linear(spec.ffn.linear_1, outer)
    _norm(spec.ffn.layer_norm, layer.join_feed.norm)


def _linear(spec: Any, linear: nn.Linear, order: Tensor | None = None) -> None:
    spec.weight = _array(linear.weight if order is None else linear.weight[order])
    if linear.bias is not None:
        spec.bias = _array(linear.bias if order is None else linear.bias[order])


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    """A copy, since the converter changes arrays in place."""
    return tensor.detach().float().cpu().contiguous().clone().numpy()
