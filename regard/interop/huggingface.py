"""MarianMT models of transformers, such as OPUS-MT: config.json, model.safetensors, source.spm, target.spm, vocab.json.

Import and export.

    post-norm, biases everywhere, swish; input sqrt(D) E[token] + [sines; cosines];  the decoder starts with <pad>

The pieces of both languages share one table in the order of vocab.json, not of the SentencePiece models. Here both
vocabularies list the whole table; pieces of the other language are never produced from text. A piece that is missing in
the table is read as <unk> and never written.

Export is the same in reverse. The sines and cosines of regard's own positions alternate; the dimensions of the residual
stream are reordered, which changes nothing else, so that all sines come first.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.subwords import SPACE, Subwords
from regard.data.vocabulary import Vocabulary
from regard.decode.settings import DecodeConfig
from regard.errors import ConfigError, DataError, brief
from regard.interop.imported import (
    LONGEST,
    Imported,
    Linear,
    check_exported,
    find_file,
    lay_out,
    parts_of,
    read_sizes,
    sines_then_cosines,
)
from regard.interop.pieces import Pieces, RowOrder, kind_of, order_rows, read_pieces
from regard.runs.folder import pack, read_tensors
from regard.sealed import fill_folder, write_atomically
from regard.symbols import END, START, SYMBOLS, UNKNOWN
from regard.version import __version__

ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}  # their names -> ours
OTHERS = ("normalize_before", "normalize_embedding", "add_final_layer_norm")  # layer norms that MarianMT ignores
NAMES = {
    "self": "self_attn",
    "cross": "encoder_attn",
    "query": "q_proj",
    "keys": "k_proj",
    "values": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
}
NORMS = {"self": "self_attn_layer_norm", "cross": "encoder_attn_layer_norm", "feed": "final_layer_norm"}
TABLE = "place.embed.table.weight"  # regard's name of the positions
MOST_BEAMS = 100
EXPORTED: dict[str, tuple[object, ...]] = {  # the settings of a Transformer that MarianMT can express
    "norm": ("post",),
    "positions": ("sinusoid", "learned"),
    "decoder": ("attention",),
    "activation": tuple(ACTIVATIONS.values()),
    "layer_norm": ("layer",),
    "key_heads": (0,),
    "score": ("scaled-dot",),
    "normaliser": ("softmax",),
}
ROWS = (END, UNKNOWN, START)  # of regard's vocabulary, as the first of an exported one: </s>, <unk>, <pad>
Take = Callable[..., Tensor]  # (names) -> the tensor with the first of these names that exists


def read_huggingface(folder: Path) -> Imported:
    """Read a MarianMT model written by `save_pretrained`."""
    config = _json(folder, "config.json")
    if config.get("model_type") != "marian":
        raise DataError(
            f"{folder} holds a model of the type {brief(repr(config.get('model_type')))}; of transformers models, "
            f"only MarianMT ('marian', such as OPUS-MT) can be imported."
        )
    model = _model_settings(config, folder)
    path = folder / "model.safetensors"
    if not path.is_file():
        pickled = (folder / "pytorch_model.bin").exists()
        pickle = "pytorch_model.bin is a pickle, which is never read; " if pickled else ""
        raise DataError(
            f"{folder} has no model.safetensors; {pickle}write it with transformers: "
            f"MarianMTModel.from_pretrained(...).save_pretrained({str(folder)!r})."
        )
    tensors = read_tensors(path)
    shared = bool(config.get("share_encoder_decoder_embeddings", True))
    spms = [read_pieces(find_file(folder, name), folder / name) for name in ("source.spm", "target.spm")]
    files = ["vocab.json"] if shared else ["vocab.json", "target_vocab.json"]
    owners = [spms] if shared else [[spms[0]], [spms[1]]]
    made = [_table(_json(folder, file), some, config, folder / file) for file, some in zip(files, owners, strict=True)]
    source, target = made[0], made[-1]
    scale = 1.0 if config.get("scale_embedding") else math.sqrt(model["width"])  # ours is always sqrt(D) E[token]

    def take(*names: str) -> Tensor:
        """The tensor with the first of these names that the file has."""
        for name in names:
            if name in tensors:
                return tensors[name].float()
        raise DataError(f"{path} is incomplete: it has no '{names[0]}'.")

    def part(side: str, layer: int, name: str) -> Linear:
        here = _name(side, layer, name)
        return take(f"{here}.weight"), take(f"{here}.bias")

    model["tied"], weights = _embeddings(take, source, target, shared, scale)
    bias = tensors.get("final_logits_bias", torch.zeros(max(target.order) + 1))
    weights["output.bias"] = target.bias(bias.float())
    # Wavelengths of 10000^(2i/D), i below D/2
    weights[TABLE] = sines_then_cosines(model["longest"], model["width"], 1 - 2 / model["width"])
    weights |= lay_out("encoder", model["layers"], part, "post")
    weights |= lay_out("decoder", model["decoder_layers"], part, "post")
    named = _json(folder, "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    return Imported(
        model=model,
        weights=weights,
        source=source.vocabulary(spms[0]),
        target=target.vocabulary(spms[1]),
        kind=kind_of(spms[0]),
        data={
            "joint": model["tied"] == "all",
            "source_language": str(named.get("source_lang") or ""),
            "target_language": str(named.get("target_lang") or ""),
        },
        decode=_search(folder, config),
        origin={"format": "transformers", "from": str(config.get("_name_or_path") or "") or "config.json"},
    )


def _name(side: str, layer: int, part: str) -> str:
    """The name in transformers of a part of a layer."""
    block, what = part.split(".")
    inside = NORMS[block] if what == "norm" else ("" if block == "feed" else NAMES[block] + ".") + NAMES[what]
    return f"model.{side}.layers.{layer}.{inside}"


def _embeddings(
    take: Take, source: RowOrder, target: RowOrder, shared: bool, scale: float
) -> tuple[str, dict[str, Tensor]]:
    """The value of `model.tied`, and the embedding tables of regard, with the input embeddings divided by `scale`."""
    read = ("model.shared.weight", "model.encoder.embed_tokens.weight", "lm_head.weight")
    written = read if shared else ("model.decoder.embed_tokens.weight", "lm_head.weight")
    reads, writes, output = take(*read), take(*written), take("lm_head.weight", *written)
    together = torch.equal(output, writes) and scale == 1.0
    tied = "none" if not together else "all" if shared else "target"
    weights = {"embed.weight": source.embedding(reads, "model.shared.weight") / scale}
    if tied != "all":
        weights["embed_target.weight"] = target.embedding(writes, "model.decoder.embed_tokens.weight") / scale
    if tied == "none":
        weights["output.weight"] = target.embedding(output, "lm_head.weight")
    return tied, weights


def _model_settings(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The [model] settings of regard."""
    sizes = {
        "width": "d_model",
        "layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "heads": "encoder_attention_heads",
        "inner": "encoder_ffn_dim",
        "longest": "max_position_embeddings",
    }
    model = read_sizes(config, sizes, folder / "config.json")
    for name in ("attention_heads", "ffn_dim"):
        if config.get(f"encoder_{name}") != config.get(f"decoder_{name}"):
            raise DataError(f"{folder} has different {name} in encoder and decoder; regard needs the same for both.")
    for name in OTHERS:
        if config.get(name):
            raise DataError(f"{folder / 'config.json'} sets {name}, which MarianMT in transformers ignores; remove it.")
    activation = config.get("activation_function")
    if activation not in ACTIVATIONS:
        raise DataError(
            f"{folder} uses the activation {brief(repr(activation))}; only {', '.join(ACTIVATIONS)} are supported."
        )
    learned = {"positions": "learned", "bias": True}  # the table of positions holds the sinusoids
    return {**model, **learned, "activation": ACTIVATIONS[str(activation)]}


def _table(ids: dict[str, Any], spms: list[Pieces], config: dict[str, Any], path: Path) -> RowOrder:
    """regard's order of the tokens in a vocab.json, followed by those that only the SentencePiece models have."""
    names = {index: token for token, index in ids.items() if type(index) is int and 0 <= index < 2 * len(ids)}
    first: list[Any] = [config.get("decoder_start_token_id"), config.get("eos_token_id"), ids.get("<unk>")]
    if len(names) != len(ids) or len(set(first)) != 3 or not set(first) <= names.keys():
        raise DataError(
            f"{path} must number each token without large gaps, including decoder_start_token_id, eos_token_id and "
            f"<unk>; got {brief(first)} and {len(ids)} tokens."
        )
    return order_rows(names, [-1, *first], spms)


def _search(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """[decode] settings from the generation settings; scores are divided by length^length_penalty."""
    own = _json(folder, "generation_config.json") if (folder / "generation_config.json").is_file() else {}
    settings = {**config, **{name: value for name, value in own.items() if value is not None}}
    beams, penalty = settings.get("num_beams"), settings.get("length_penalty")
    return {
        "beam": beams if type(beams) is int and 1 <= beams <= MOST_BEAMS else 1,
        "length_penalty": max(0.0, float(penalty)) if isinstance(penalty, int | float) else 1.0,
        "length_offset": 0.0,
        "patient": settings.get("early_stopping") is not True,
        "max_extra": 50,
    }


def _json(folder: Path, name: str) -> dict[str, Any]:
    content = find_file(folder, name)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{folder / name} is not JSON, or is damaged: {error}.") from None
    if not isinstance(found, dict):
        raise DataError(f"{folder / name} must hold a JSON object; got {type(found).__name__}.")
    return found


# --- export


def export_huggingface(
    model: Any,
    vocabularies: tuple[Vocabulary, Vocabulary],
    out: Path,
    decode: DecodeConfig,
    languages: tuple[str, str],
    card: str,
) -> int:
    """Write a Transformer as the new folder `out`, which MarianMTModel and MarianTokenizer of transformers load.

    `card` becomes README.md. Returns the size in bytes.
    """
    order = _stream_order(model, vocabularies)
    shared = model.config.tied == "all"
    state = {name: weight.detach().float().cpu() for name, weight in model.state_dict().items()}
    rows = [torch.tensor([*ROWS, *range(len(SYMBOLS), len(words))]) for words in vocabularies]
    tables = {"model.shared": "embed"} if shared else {
        "model.encoder.embed_tokens": "embed", "model.decoder.embed_tokens": "embed_target"
    }  # fmt: skip
    tables |= {"lm_head": "output"} if model.config.tied == "none" else {}
    weights = {
        f"{theirs}.weight": state[f"{ours}.weight"][rows[ours != "embed"]][:, order] for theirs, ours in tables.items()
    }
    bias = state.get("output.bias", torch.zeros(len(vocabularies[1])))
    weights["final_logits_bias"] = bias[rows[1]][None]  # [1, V]
    for side, layers in (("encoder", model.encoder), ("decoder", model.decoder)):
        for name, layer, parts in parts_of(side, len(layers)):
            whole = state[f"{name}.weight"]
            bias = state.get(f"{name}.bias", torch.zeros(len(whole)))
            for part, weight, shift in zip(parts, whole.chunk(len(parts)), bias.chunk(len(parts)), strict=True):
                writes = part.endswith(("output", "outer", "norm"))  # into the residual stream; the others read it
                here = _name(side, layer, part)
                weights[f"{here}.weight"] = weight[order] if writes else weight[:, order]
                weights[f"{here}.bias"] = shift[order] if writes else shift
    source, target = languages
    settings = {
        "config.json": _exported_config(model, vocabularies),
        "generation_config.json": _exported_search(decode, min(512, model.longest or LONGEST)),
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer", "separate_vocabs": not shared,
            **({"source_lang": source, "target_lang": target} if source and target else {}),
        },
    }  # fmt: skip
    files = {"README.md": card.encode(), "model.safetensors": pack({n: w.contiguous() for n, w in weights.items()})}
    for name, words, ids in zip(("source", "target"), vocabularies, rows, strict=True):
        settings["vocab.json" if shared or name == "source" else "target_vocab.json"], files[f"{name}.spm"] = (
            _exported_words(words, ids.tolist())
        )
    files |= {name: (json.dumps(found, indent=1) + "\n").encode() for name, found in settings.items()}
    with fill_folder(out) as folder:
        for name, content in files.items():
            write_atomically(folder / name, content)
    return sum(map(len, files.values()))


def _stream_order(model: Any, vocabularies: tuple[Vocabulary, Vocabulary]) -> Tensor:
    """The order [D] of the residual stream in which all sines come first; refuses what MarianMT cannot express."""
    check_exported(model, "MarianMT of transformers", EXPORTED)
    config = model.config
    for words in vocabularies:
        if not isinstance(words.tokens, Subwords):
            raise ConfigError(
                f"MarianTokenizer reads SentencePiece models; this run has data.subwords = {words.kind!r}."
            )
    width = config.width
    if config.positions == "learned":
        sines = sines_then_cosines(config.longest, width, 1 - 2 / width)
        if not torch.allclose(model.state_dict()[TABLE].cpu(), sines, atol=1e-5):
            raise ConfigError(
                "MarianMT of transformers computes its positions, sines with other wavelengths than in the position "
                "table of this run; export it to ONNX."
            )
        return torch.arange(width)
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def _exported_config(model: Any, vocabularies: tuple[Vocabulary, Vocabulary]) -> dict[str, Any]:
    config, sizes = model.config, [len(words) - 1 for words in vocabularies]  # without PAD
    sides = {"attention_heads": config.heads, "ffn_dim": config.inner}
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "d_model": config.width,
        "encoder_layers": len(model.encoder),
        "decoder_layers": len(model.decoder),
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()},
        "activation_function": {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}[config.activation],
        "max_position_embeddings": model.longest or LONGEST,
        "scale_embedding": True,
        "dropout": config.dropout,
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1],
        "share_encoder_decoder_embeddings": config.tied == "all",
        "tie_word_embeddings": config.tied != "none",
        "eos_token_id": ROWS.index(END),
        "pad_token_id": ROWS.index(START),
        "decoder_start_token_id": ROWS.index(START),
        "forced_eos_token_id": None,
        "dtype": "float32",
        "regard_version": __version__,
    }


def _exported_search(decode: DecodeConfig, longest: int) -> dict[str, Any]:
    banned = [ROWS.index(START), *([ROWS.index(UNKNOWN)] if decode.ban_unknown else [])]
    return {
        "num_beams": decode.beam,
        "length_penalty": decode.length_penalty,
        "early_stopping": not decode.patient,
        "max_length": longest,
        "bad_words_ids": [[index] for index in banned],
        "eos_token_id": ROWS.index(END),
        "pad_token_id": ROWS.index(START),
        "decoder_start_token_id": ROWS.index(START),
    }


def _exported_words(words: Vocabulary, rows: list[int]) -> tuple[dict[str, int], bytes]:
    """The vocab.json and the SentencePiece model of a vocabulary. The tokenizer of transformers reads language codes
    such as >>fra<< itself."""
    content = words.tokens.content
    pieces = {index: "<pad>" if index == START else words.tokens.pieces[index] for index in rows}
    codes = {index: piece for index, piece in pieces.items() if piece.startswith(SPACE + ">>") and piece.endswith("<<")}
    if codes:
        model = read_pieces(content, "The vocabulary")
        kept = [piece for piece in model.pieces if piece.piece not in codes.values()]
        del model.pieces[:]
        model.pieces.extend(kept)
        content = model.SerializeToString()
    named = {**pieces, **{index: piece.removeprefix(SPACE) for index, piece in codes.items()}}
    return {named[index]: number for number, index in enumerate(rows)}, content
