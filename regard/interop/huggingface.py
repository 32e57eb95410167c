"""MarianMT models of transformers, such as OPUS-MT: config.json, model.safetensors, source.spm, target.spm, vocab.json.

    post-norm, biases everywhere, swish; input sqrt(D) E[token] + [sines; cosines];  the decoder starts with <pad>

The pieces of both languages share one table in the order of vocab.json, not of the SentencePiece models. Here both
vocabularies list the whole table; pieces of the other language are never produced from text. A piece that is missing in
the table is read as <unk> and never written.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import DataError, brief
from regard.interop.imported import Imported, Linear, find_file, lay_out, read_sizes, sines_then_cosines
from regard.interop.pieces import Pieces, RowOrder, kind_of, order_rows, read_pieces
from regard.runs.folder import read_tensors

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
MOST_BEAMS = 100
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
        """A part of a layer, by its name in transformers."""
        block, what = name.split(".")
        here = f"model.{side}.layers.{layer}."
        here += NORMS[block] if what == "norm" else ("" if block == "feed" else NAMES[block] + ".") + NAMES[what]
        return take(f"{here}.weight"), take(f"{here}.bias")

    model["tied"], weights = _embeddings(take, source, target, shared, scale)
    bias = tensors.get("final_logits_bias", torch.zeros(max(target.order) + 1))
    weights["output.bias"] = target.bias(bias.float())
    # Wavelengths of 10000^(2i/D), i below D/2
    weights["place.embed.table.weight"] = sines_then_cosines(model["longest"], model["width"], 1 - 2 / model["width"])
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
    names = {index: token for token, index in ids.items() if type(index) is int and 0 <= index < 10_000_000}
    first: list[Any] = [config.get("decoder_start_token_id"), config.get("eos_token_id"), ids.get("<unk>")]
    if len(names) != len(ids) or len(set(first)) != 3 or not set(first) <= names.keys():
        raise DataError(
            f"{path} must number each token, including decoder_start_token_id, eos_token_id and <unk>; got {first} and "
            f"{len(ids)} tokens."
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
    try:
        found = json.loads(find_file(folder, name))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{folder / name} is not JSON, or is damaged: {error}.") from None
    if not isinstance(found, dict):
        raise DataError(f"{folder / name} must hold a JSON object; got {type(found).__name__}.")
    return found
