"""Between the dataclasses of a trace and the plain tree of dicts, lists and numbers that is written as JSON."""

from typing import Any

from regard.errors import DataError
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
    try:
        beam, image = tree.get("beam"), tree.get("image")
        return dict(
            source=_build_sentence(tree["source"]),
            target=_build_sentence(tree["target"]),
            attention={name: _build_attended(seen) for name, seen in tree["attention"].items()},
            model=tree.get("model", {}),
            steps=tuple(
                Step(**{**step, "query": tuple(step["query"]), "context": tuple(step["context"])})
                for step in tree.get("steps", ())
            ),
            beam=None
            if beam is None
            else Beam(beam["size"], tuple(Node(**n) for n in beam["nodes"]), tuple(beam["ranked"])),
            changes=tuple(tree.get("changes", ())),
            image=None
            if image is None
            else Picture(image["width"], image["height"], (image["grid"][0], image["grid"][1])),
        )
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise DataError(
            f"This is not a whole trace: {type(error).__name__} at {error}. Write it with Trace.save."
        ) from error


def _build_sentence(side: dict[str, Any]) -> Sentence:
    tokens = (
        Token(**{**token, "topk": tuple((each["text"], each["logprob"]) for each in token.get("topk", ()))})
        for token in side["tokens"]
    )
    return Sentence(side["text"], tuple(tokens))


def _build_attended(seen: dict[str, Any]) -> Attended:
    arrays = {key: store.array(seen[key]) for key in _ARRAYS if seen.get(key) is not None}
    rest = {key: value for key, value in seen.items() if key not in ("shape", *_ARRAYS)}
    attended = Attended(**arrays, **rest)
    if list(attended.weights.shape) != list(seen.get("shape", attended.weights.shape)):
        raise DataError(
            f"'{attended.name}' says its shape is {seen['shape']} but holds {list(attended.weights.shape)}."
        )
    return attended
