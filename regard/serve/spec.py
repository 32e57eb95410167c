"""The OpenAPI description of the API, written by hand and served at /spec. Tests send what it describes."""

from collections.abc import Iterable, Mapping
from typing import Any

from regard.serve.changes import KINDS
from regard.serve.limits import Limits
from regard.serve.worker import Worker

Schema = dict[str, Any]
_KINDS: dict[str, Schema] = {
    "text": {"type": "string"},
    "whole": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    "file": {"type": "string", "format": "binary"},
}


def _schema(short: Any, **more: Any) -> Schema:
    """A JSON schema from its short form, with `more` keys.

    Short forms: "text" and the other kinds; "#Name", a schema below; "a|b", an enum; "[kind]", an array. Text after a
    colon is the description. A mapping is an object, whose names with "!" are required; a list is a oneOf. A mapping
    with "type" is a schema already.
    """
    if isinstance(short, list):
        return {"oneOf": [_schema(one) for one in short], **more}
    if isinstance(short, Mapping):
        if not short or {"type", "enum", "oneOf"} & short.keys():
            return {**short, **more}
        required = [name[:-1] for name in short if name.endswith("!")]
        properties = {name.removesuffix("!"): _schema(one) for name, one in short.items()}
        return {"type": "object", "properties": properties, **({"required": required} if required else {}), **more}
    kind, _, words = short.partition(": ")
    if kind.startswith("["):
        found: Schema = {"type": "array", "items": _schema(kind[1:-1])}
    elif kind.startswith("#"):
        found = {"$ref": f"#/components/schemas/{kind[1:]}"}
    else:
        found = {"enum": kind.split("|")} if "|" in kind else _KINDS[kind]
    return {**found, **({"description": words} if words else {}), **more}


def describe(limits: Limits, translators: Mapping[str, Worker], captioners: Mapping[str, Worker]) -> Schema:
    """The OpenAPI document of a server with these limits and models."""
    models = _name_of(list(translators))
    operations = {**_libre(limits, models), **_deepl(limits), **_own(limits, models), **_pictures(limits, captioners)}
    examples = _examples(next((worker.about for worker in translators.values()), {}))
    paths: Schema = {}
    for place, operation in {**operations, **_about()}.items():
        method, path = place.split(" ")
        if place in examples:
            operation["requestBody"]["content"]["application/json"]["example"] = examples[place]
        paths.setdefault(path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "regard",
            "version": "1",
            "description": "Translation compatible with LibreTranslate and DeepL v2, captions of pictures, and the "
            "attention of the model.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {name: _schema(short) for name, short in _SCHEMAS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _examples(about: Mapping[str, Any]) -> dict[str, Any]:
    """A valid body for each endpoint that takes JSON, for the model that the server uses by default."""
    source, target = (about.get(side, {}).get("code", code) for side, code in (("source", "en"), ("target", "fr")))
    text = next(iter(about.get("examples", ())), "Hello")
    pair = {"source": source, "target": target}
    pair_deepl = {"source_lang": source.upper(), "target_lang": target.upper()}
    # A model without attention has nothing to change but the words.
    change = {"prefix": []} if about.get("fixed") else {"changes": [{"kind": "temperature", "value": 0.5}]}
    return {
        "POST /translate": {"q": text, **pair},
        "POST /detect": {"q": text},
        "POST /suggest": {"q": "Hello", "s": "Salut", **pair},
        "POST /v2/translate": {"text": [text], **pair_deepl},
        "POST /v2/glossaries": {"name": "terms", **pair_deepl, "entries": "house\tmaison", "entries_format": "tsv"},
        **{f"POST /api/v1/{name}": {"text": text} for name in ("trace", "worth", "beam")},
        **{f"POST /api/v1/{name}": {"text": text, "t": 0} for name in ("steps", "path")},
        "POST /api/v1/alternatives": {"text": text, "prefix": []},
        "POST /api/v1/what-if": {"text": text, **change},
    }


def _libre(limits: Limits, model: Schema) -> Schema:
    text = _schema("text", maxLength=limits.characters)
    translate = {
        "q!": [text, _list(text, limits.segments)],
        "source!": "text: a code of /languages, or auto",
        "target!": "text: a code of /languages",
        "format": _schema("text|html", default="text"),
        "alternatives": _schema("whole", maximum=limits.alternatives, default=0),
        "alignment": "flag: regard only: also return the word alignment",
        "stream": "flag: regard only: stream one text as server-sent events, each a JSON object with sentence (a "
        "number), source (its span in q), translatedText so far and, when done, flags and unknown; the last event "
        "holds the whole translatedText",
        "model": _schema(model, description="regard only: an id of /api/v1/models"),
        "api_key": "text",
    }
    upload = {"file!": "file", "source!": "text", "target!": "text", "glossary_id": "text", "model": model}
    post = _post("Translate", translate, "#Translated", FORMS)
    post["responses"]["200"]["content"]["text/event-stream"] = {"schema": _schema("text")}
    detect = {"q!": text, "api_key": "text"}
    suggest = dict.fromkeys(("q!", "s!", "source!", "target!"), text)
    download = _get("A translated file", {}, content="application/octet-stream")
    return {
        "POST /translate": post,
        "POST /detect": _post("Detect the language of a text", detect, "[#Detected]", FORMS),
        "POST /translate_file": _post(
            "Translate a file; its extension selects the format", upload, {"translatedFileUrl!": "text"}, FORMS[-1:]
        ),
        "GET /download_file/{name}": {**download, "parameters": [_in_path("name")]},
        "POST /suggest": _post("Suggest a better translation", suggest, {"success": "flag"}, FORMS),
        "GET /languages": _get("The languages of the loaded models", "[#Language]"),
        "GET /frontend/settings": _get("Settings for a web form", "object"),
    }


def _deepl(limits: Limits) -> Schema:
    translate = {
        "text!": _list(_schema("text", maxLength=limits.characters), limits.segments, least=1),
        "target_lang!": "text",
        "source_lang": "text",
        "tag_handling": "html|xml",
        "ignore_tags": "[text]: XML elements that are not translated",
        "splitting_tags": "[text]: XML elements that end a sentence",
        "glossary_id": "text",
    }
    glossary = {
        "name!": "text",
        "source_lang!": "text",
        "target_lang!": "text",
        "entries!": "text: one entry per line: source term, tab or comma, target term",
        "entries_format!": "tsv|csv",
    }
    made = _post("Store terms", glossary, "#Glossary", FORMS, "Message")
    made["responses"] = {"201": made["responses"]["200"], "default": made["responses"]["default"]}
    gone = {"summary": "Delete a glossary", "responses": {"204": {"description": "OK"}, "default": _error("Message")}}
    given = {"parameters": [_in_path("id")]}
    translations = {"translations!": "[#DeepLTranslation]"}
    listed = _list({"language!": "text", "name!": "text"})
    kind = {"parameters": [_query("type", "source|target")]}
    terms = _get("The entries of a glossary", "text", "Message", "text/tab-separated-values")
    used = {"character_count": "whole", "character_limit": "whole"}
    return {
        "POST /v2/translate": _post("Translate, as DeepL does", translate, translations, FORMS, "Message"),
        "GET /v2/languages": {**_get("Languages, as DeepL lists them", listed, "Message"), **kind},
        "GET /v2/glossaries": _get("The glossaries of this client", {"glossaries!": "[#Glossary]"}, "Message"),
        "POST /v2/glossaries": made,
        "GET /v2/glossaries/{id}": {**_get("A glossary", "#Glossary", "Message"), **given},
        "DELETE /v2/glossaries/{id}": {**gone, **given},
        "GET /v2/glossaries/{id}/entries": {**terms, **given},
        "GET /v2/glossary-language-pairs": _get(
            "Language pairs that support glossaries", {"supported_languages!": "[object]"}, "Message"
        ),
        "GET /v2/usage": _get("Characters translated since the start", used, "Message"),
    }


def _own(limits: Limits, model: Schema) -> Schema:
    pieces = _list("text", limits.tokens)
    text = _schema("text", maxLength=limits.characters, description="one sentence")
    search: Schema = {
        "model": model,
        "text!": text,
        "beam": _schema("whole: beam width of the search for a translation", minimum=1, maximum=limits.beam),
        "changes": {**_list("#Change", limits.changes), "description": _CHANGES},
    }
    translation = {
        "target": _schema(
            ["text", pieces],
            description="the translation to inspect, as text or pieces; default: the model's own",
        ),
        "prefix": _schema(
            ["text", pieces], description="the start of the translation, as text or pieces; not together with target"
        ),
    }
    part = {
        "layers": _schema("[whole]: return the attention of these layers only, from 0", minItems=1),
        "heads": _schema("[whole]: return these heads only, from 0", minItems=1),
    }
    look = {**search, **translation}
    body, step = (
        {**look, **part},
        {**look, "t": "whole: token of the target, from 0; with an encoder module as name, token of the source"},
    )
    trace = "object: a trace, as regard.look.Trace reads and writes it"
    most = _schema("whole", minimum=1, maximum=50)
    ask = {"model": model, "text!": text, "prefix!": ["text", pieces], "most": most}
    choices = _list({"text": "text", "piece!": "text", "probability!": "number"})
    head = {"layer": "whole", "head": "whole", "aer": "number: alignment error rate"}
    rates = _get("How well each head aligns", {"sentences!": "whole", "heads!": _list(head)})
    worth = {"heads": _list({"name": "text", "head": "whole", "drop": "number"})}
    return {
        "GET /api/v1/models": _get("The loaded models", {"models": "[object]"}),
        "GET /api/v1/heads": {**rates, "parameters": [_query("model", model)]},
        "POST /api/v1/trace": _post("The attention of a translation", body, trace),
        "POST /api/v1/steps": _post(
            "The arithmetic of one step", {**step, "name": "text: attention module", "head": "whole"}, "object"
        ),
        "POST /api/v1/path": _post(
            "The layers of a Transformer at one step",
            {
                **step,
                "name": "text: any attention module of the encoder, for its layers; default: the decoder's layers",
            },
            "object",
        ),
        "POST /api/v1/worth": _post("How much less likely a translation is without each head", look, worth),
        "POST /api/v1/beam": _post("A trace with the search tree", {**search, **part}, trace),
        "POST /api/v1/alternatives": _post("The words that could follow a prefix", ask, {"alternatives": choices}),
        "POST /api/v1/what-if": _post("A trace under changes, or with a prefix", body, trace),
    }


def _pictures(limits: Limits, captioners: Mapping[str, Worker]) -> Schema:
    model = _query("model", _name_of(list(captioners)))
    pixels = "".join(f" and {worker.about['megapixels']} megapixels" for worker in list(captioners.values())[:1])
    file = _schema("file", maxLength=limits.picture)
    words = {
        "text!": "text",
        "logprob!": "number",
        "gate": "number: beta, the gate on the context, for models that have one",
        "weights!": "[[number]]: attention weights over the grid, row by row; they sum to 1",
    }
    answer = {
        "caption!": "text",
        "finished!": "text: end, or length if it was cut off",
        "nbest!": {
            **_list({"text!": "text", "score!": "number", "logprob!": "number"}),
            "description": "best first",
        },
        "grid!": {**_list("whole", 2, least=2), "description": "rows and columns"},
        "words!": _list(words),
        "trace!": "object: the trace, as regard.look.Trace reads it",
    }
    caption = {
        "summary": "Describe a picture, with the attention of each word",
        "description": f"JPEG, PNG or WebP; at most {limits.picture >> 20} MiB{pixels}. Options go in the query.",
        "parameters": [
            model,
            _query("nbest", _schema("whole", minimum=1, maximum=limits.alternatives + 1, default=1)),
            _query("beam", _schema("whole", minimum=1, maximum=limits.beam)),
        ],
        "requestBody": {
            "required": True,
            "content": {**_content(file, "application/octet-stream"), **_content({"image!": file}, FORMS[-1])},
        },
        "responses": {"200": {"description": "OK", "content": _content(answer)}, "default": _error("Error")},
    }
    drawn = {
        "number!": "whole",
        "caption!": "text: the reference caption",
        "png!": _schema("text", contentEncoding="base64", contentMediaType="image/png"),
    }
    number = _query("number", _schema("whole", maximum=999_999, default=0))
    return {
        "POST /api/v1/caption": caption,
        "GET /api/v1/example": {**_get("A picture to try a captioner on", drawn), "parameters": [model, number]},
    }


def _about() -> Schema:
    status = {"status!": "ok|unavailable", "error": "text"}
    health = _get("Whether every model is ready", status)
    health["responses"]["503"] = {"description": "not ready, with the reason", "content": _content(status)}
    text = {"description": "Prometheus text", "content": _content("text", "text/plain")}
    return {
        "GET /health": health,
        "GET /metrics": {"summary": "Metrics", "responses": {"200": text, "default": _error("Error")}},
        "GET /spec": _get("This document", "object"),
    }


FORMS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")


def _post(summary: str, body: Any, found: Any, kinds: Iterable[str] = FORMS[:1], error: str = "Error") -> Schema:
    content = {kind: {"schema": _schema(body)} for kind in kinds}
    answer = _get(summary, found, error)["responses"]
    return {"summary": summary, "requestBody": {"required": True, "content": content}, "responses": answer}


def _get(summary: str, found: Any, error: str = "Error", content: str = "application/json") -> Schema:
    success = {"description": "OK", "content": _content(found, content)}
    return {"summary": summary, "responses": {"200": success, "default": _error(error)}}


def _in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": _schema("text", pattern="^[A-Za-z0-9]+$")}


def _error(name: str) -> Schema:
    return {"description": "error, with the reason", "content": _content(f"#{name}")}


def _content(short: Any, kind: str = "application/json") -> Schema:
    return {kind: {"schema": _schema(short)}}


def _list(items: Any, most: int | None = None, least: int = 0) -> Schema:
    bounds = {"maxItems": most, "minItems": least}
    return {"type": "array", "items": _schema(items), **{name: size for name, size in bounds.items() if size}}


def _name_of(models: list[str]) -> Schema:
    return {"enum": models} if models else _schema("text")


def _query(name: str, short: Any) -> Schema:
    return {"name": name, "in": "query", "schema": _schema(short)}


_CHANGES = (
    "what-ifs: objects with a kind and its fields: "
    + "; ".join(f"{kind} with {', '.join(names)}" for kind, names in KINDS.items())
    + " (head is optional; default: all heads). position is a token of the source, t a token of the target, from 0. "
    "Example: "
    '[{"kind": "mask", "position": 3}, {"kind": "temperature", "value": 0.5}]'
)
_SPAN = _list("whole", 2, least=2)
_SCHEMAS: Schema = {
    "Error": {"error!": "text"},
    "Message": {"message!": "text"},
    "Detected": {"confidence!": _schema("number", minimum=0, maximum=100), "language!": "text"},
    "Language": {"code!": "text", "name!": "text", "targets!": "[text]"},
    "Link": {"source!": _SPAN, "target!": _SPAN, "weight!": "number"},
    "Note": {"source!": _SPAN, "flags!": "[text]", "unknown!": "[text]: words or characters never seen in training"},
    "Translated": {
        "translatedText!": ["text", "[text]"],
        "detectedLanguage": ["#Detected", "[#Detected]"],
        "alternatives": _list(["text", "[text]"]),
        "alignment": _list(["#Link", "[#Link]"]),
        "notes": {
            **_list(["#Note", "[#Note]"]),
            "description": "regard only: sentences with problems; absent if there are none",
        },
    },
    "DeepLTranslation": {
        "detected_source_language!": "text",
        "text!": "text",
        "billed_characters": "whole",
        "unplaced_terms": "[text]: regard only: glossary terms that could not be placed",
    },
    "Glossary": {
        "glossary_id!": "text",
        "name!": "text",
        "source_lang!": "text",
        "target_lang!": "text",
        "entry_count!": "whole",
    },
    "Change": {
        "kind!": "mask|temperature|set-row|shift-row|silence",
        "position": "whole: token of the source, from 0: masked, or with set-row the only one that row t attends to",
        "weights": "[number]: for set-row, instead of position: the weights of row t, one for each source token",
        "t": "whole: for set-row and shift-row: token of the target, from 0",
        "by": {"type": "integer", "description": "for shift-row: how far the weights of row t move to the right"},
        "value": "number: for temperature: divides the scores; below 1 is sharper",
        "name": "text: for silence: attention module, as in a trace",
        "head": "whole: for set-row, shift-row and silence: this head only",
    },
}
