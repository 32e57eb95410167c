"""Between the dataclasses of a trace and the plain tree of dicts, lists and numbers that is written as JSON.

What is written names every attention module, since a Transformer has three kinds of them. What is read may also be the
short form, for programs that have one kind: one block of weights [L, H, T, S] for all layers.
"""

from typing import Any

from regard.errors import DataError, RegardError
from regard.look import store
from regard.look.contents import Attended, Beam, Contents, Node, Picture, Step
from regard.look.pieces import Sentence, Token

_ARRAYS = ("weights", "scores", "context_norms", "centre")
_TOKEN_OPTIONAL = ("word", "logprob", "topk")


def plain(trace: Contents) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "trace": store.VERSION,
        "model": dict(trace.model),
        "source": _plain_sentence(trace.source),
        "target": _plain_sentence(trace.target),
        "attention": {
            name: {**vars(seen), "shape": list(seen.weights.shape)} for name, seen in trace.attention.items()
        },
    }
    if trace.steps:
        tree["steps"] = [{**vars(step), "norms": dict(step.norms)} for step in trace.steps]
    if trace.beam is not None:
        tree["beam"] = {**vars(trace.beam), "nodes": [vars(node) for node in trace.beam.nodes]}
    if trace.changes:
        tree["changes"] = [dict(change) for change in trace.changes]
    if trace.image is not None:
        tree["image"] = vars(trace.image)
    return tree


def _plain_sentence(side: Sentence) -> dict[str, Any]:
    def plain(token: Token) -> dict[str, Any]:
        values = {**vars(token), "topk": [{"text": text, "logprob": logprob} for text, logprob in token.topk]}
        return {key: value for key, value in values.items() if key not in _TOKEN_OPTIONAL or value not in (None, [])}

    return {"text": side.text, "tokens": [plain(token) for token in side.tokens]}


def fields(tree: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a `Contents` from its plain tree."""
    for name in ("source", "target", "attention"):
        if not isinstance(tree.get(name), dict):
            raise DataError(f"This is not a whole trace: '{name}' must be an object; got {_kind(tree.get(name))}.")
    try:
        attention = _build_attention(tree["attention"], dict(tree.get("model", {})))
        return {
            "source": _build_sentence(tree["source"]),
            "target": _build_sentence(tree["target"]),
            "attention": attention,
            "model": dict(tree.get("model", {})),
            "steps": tuple(_build_step({"name": [*attention, ""][0], **step}) for step in tree.get("steps", ())),
            "beam": _build_beam(tree.get("beam")),
            "changes": tuple({**change, "text": change["text"]} for change in tree.get("changes", ())),
            "image": _build_picture(tree.get("image")),
        }
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
        if isinstance(error, RegardError):
            raise
        lacks = f"{error} is missing" if isinstance(error, KeyError) else f"a part is of the wrong kind ({error})"
        raise DataError(f"This is not a whole trace: {lacks}. The format is in docs/looking.md.") from error


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _build_step(step: dict[str, Any]) -> Step:
    query, context = (tuple(float(value) for value in step.get(key, ())) for key in ("query", "context"))
    return Step(**{**step, "query": query, "context": context, "norms": dict(step.get("norms", {}))})


def _build_beam(beam: dict[str, Any] | None) -> Beam | None:
    if beam is None:
        return None
    return Beam(int(beam["size"]), tuple(Node(**node) for node in beam["nodes"]), tuple(beam["ranked"]))


def _build_picture(image: dict[str, Any] | None) -> Picture | None:
    if image is None:
        return None
    rows, columns = image["grid"]
    return Picture(int(image["width"]), int(image["height"]), (int(rows), int(columns)))


def _build_sentence(side: dict[str, Any]) -> Sentence:
    tokens = (
        Token(
            **{
                "piece": token["text"],
                **token,
                "topk": tuple((each["text"], each["logprob"]) for each in token.get("topk", ())),
            }
        )
        for token in side["tokens"]
    )
    return Sentence(side["text"], tuple(tokens))


def _build_attention(tree: dict[str, Any], model: dict[str, Any]) -> dict[str, Attended]:
    block = tree.get("weights")
    if not (isinstance(block, list) or (isinstance(block, dict) and "base64" in block)):
        return {name: _build_attended(seen) for name, seen in tree.items()}
    layers = {key: store.array(tree[key]) for key in ("weights", "scores") if tree.get(key) is not None}
    for key, values in layers.items():
        if values.ndim != 4 or list(values.shape) != list(tree.get("shape", values.shape)):
            says = f"; it says {tree['shape']}" if "shape" in tree else ""
            raise DataError(f"The {key} of a trace in one block are [L, H, T, S]; got {list(values.shape)}{says}.")
    told: dict[str, Any] = {key: model[key] for key in ("query", "score") if key in model}
    told |= {key: value for key, value in tree.items() if key not in ("shape", *layers)}
    count = len(layers["weights"])
    return {
        f"layers.{at}": Attended(f"layers.{at}", layer=at, **{key: part[at] for key, part in layers.items()}, **told)
        for at in range(count)
    }


def _build_attended(seen: dict[str, Any]) -> Attended:
    arrays: dict[str, Any] = {key: store.array(seen[key]) for key in _ARRAYS if seen.get(key) is not None}
    rest = {key: value for key, value in seen.items() if key not in ("shape", *_ARRAYS)}
    attended = Attended(**arrays, **rest)
    if list(attended.weights.shape) != list(seen.get("shape", attended.weights.shape)):
        raise DataError(
            f"'{attended.name}' says its shape is {seen['shape']} but holds {list(attended.weights.shape)}."
        )
    return attended
