"""The requests and answers of the API. FastAPI checks requests with these models and writes /spec from them.

Bounds that an operator can change are checked by the endpoints, so that they follow `Limits`.
"""

import json
from typing import Annotated, Any, Literal, Self

from fastapi import UploadFile
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from regard.errors import brief, unknown
from regard.serve.limits import Limits, RefusedError

_DEFAULT = Limits()
KEYS = ("api_key", "apiKey")  # the names of the field with the token; npm's libretranslate sends the second


def _refuse_flag(value: Any) -> Any:
    """pydantic reads true as 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("int_type", "not a number")
    return value


def _split_names(value: Any) -> Any:
    """Names in one text with commas, or in a list of such texts."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return value
    return [name for text in texts for name in text.split(",") if name]


def _check_pieces(value: Any) -> Any:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(piece, str) for piece in value)):
        return value
    got = brief(json.dumps(value, ensure_ascii=False))
    raise PydanticCustomError("pieces", "must be text, or a list of pieces as in a trace; got {got}", {"got": got})


def _check_format(value: Any) -> Any:
    if isinstance(value, str) and value not in ("", "text", "html"):
        raise RefusedError(400, f"{value[:40]} format is not supported")
    return value or "text"


Whole = Annotated[int, BeforeValidator(_refuse_flag), Field(ge=0)]
Names = Annotated[list[str], BeforeValidator(_split_names)]
Pieces = Annotated[str | list[str], BeforeValidator(_check_pieces)]
Numbers = Annotated[list[Annotated[int, Field(strict=True, ge=0, le=1000)]], Field(min_length=1)]
Step = Annotated[Whole, Field(le=10_000)]
Span = Annotated[list[int], Field(min_length=2, max_length=2, description="first and last + 1 code point")]


class Strict(BaseModel):
    """A model that refuses unknown fields: a misspelled one would have no effect."""

    @model_validator(mode="before")
    @classmethod
    def _check_names(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        fields = {name: value for name, value in given.items() if name not in KEYS}
        for name in fields:
            if name not in cls.model_fields:
                where = " of this request" if cls.__name__.endswith("Request") else f" of a {fields['kind']} change"
                raise RefusedError(422, unknown("field", str(name)[:80], cls.model_fields, where))
        return fields


def explain(errors: list[Any], path: str) -> RefusedError:
    """The refusal for a request that a model does not accept, in the words of LibreTranslate where it has some."""
    error = errors[0]
    place = [str(part) for part in error["loc"] if part not in ("body", "query")]
    field = f"{place[0]} parameter" if place else "the request"
    match error["type"]:
        case "missing" if len(place) == 1:
            return RefusedError(400, f"Invalid request: missing {field}")
        case "string_type" if len(place) <= 3 and place[-1] in (place[0], "str"):
            return RefusedError(400, f"Invalid request: {field} is not text")
        case "int_type" | "int_parsing" | "int_parsing_size" | "int_from_float" | "finite_number":
            if len(place) == 1:
                return RefusedError(400, f"Invalid request: {field} is not a number")
        case "greater_than_equal" | "less_than_equal" if len(place) == 1:
            (name, bound), *_ = error["ctx"].items()
            return RefusedError(400, f"Invalid request: {field} must be {'>=' if name == 'ge' else '<='} {bound}")
    status = 422 if path.startswith("/api/v1/") else 400
    return RefusedError(status, f"Invalid request: {'.'.join(place)}: {brief(error['msg'])}.")


class Error(BaseModel):
    """Why a request was refused, in one sentence."""

    error: str


class Message(BaseModel):
    """Why a request was refused, as DeepL writes it."""

    message: str


# --- LibreTranslate

Text = Annotated[str, Field(description=f"by default at most {_DEFAULT.characters:,} characters")]
Code = Annotated[str, Field(description="a code of /languages")]
Model = Annotated[str | None, Field(description="an id of /api/v1/models; default: the first that fits")]
Key = Annotated[str | None, Field(description="the token, unless it is in a header")]


class TranslateRequest(BaseModel):
    q: str | list[str] = Field(
        description=f"a text, or in JSON a list of texts, by default at most {_DEFAULT.segments}"
    )
    source: Annotated[str, Field(description="a code of /languages, or auto")]
    target: Code
    format: Annotated[Literal["text", "html"], BeforeValidator(_check_format)] = "text"
    alternatives: Annotated[Whole, Field(description=f"by default at most {_DEFAULT.alternatives}")] = 0
    alignment: Annotated[bool, Field(description="regard only: also return the word alignment")] = False
    confidence: Annotated[
        bool, Field(description="regard only: also return the calibrated confidence of sentences and words")
    ] = False
    stream: bool = Field(
        False,
        description="regard only: stream one text as server-sent events, each a JSON object with sentence (a number), "
        "source (its span in q), translatedText so far and, when done, flags, notes and unknown; the last event holds "
        "the whole translatedText",
    )
    model: Model = None
    api_key: Key = None


class DetectRequest(BaseModel):
    q: Text
    api_key: Key = None


class SuggestRequest(BaseModel):
    q: Text
    s: Annotated[str, Field(description="a better translation of q")]
    source: str
    target: str
    api_key: Key = None


class TranslateFileRequest(BaseModel):
    file: UploadFile
    source: Annotated[str, Field(description="a code of /languages, or auto")]
    target: Code
    glossary_id: str | None = None
    model: Model = None
    api_key: Key = None


class Detected(BaseModel):
    confidence: Annotated[float, Field(ge=0, le=100)]
    language: str


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]
    pivoted: list[str] = Field([], description="the targets that are translated through English, with two models")


class Link(BaseModel):
    source: Span
    target: Span
    weight: float


class Note(BaseModel):
    source: Span
    flags: list[str]
    notes: Annotated[list[str], Field(description="the flags in words")]
    unknown: Annotated[list[str], Field(description="words or characters never seen in training")]


class Rated(BaseModel):
    source: Span
    confidence: Annotated[float | None, Field(description="expected chrF, 0 to 1; null without words")]
    words: Annotated[list[tuple[str, float]], Field(description="each with the probability that a reference has it")]


class Translated(BaseModel):
    """One value for a text, a list of values for a list of texts."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    alignment: list[Link] | list[list[Link]] | None = None
    confidence: list[Rated] | list[list[Rated]] | None = Field(
        None, description="regard only: the confidence of each sentence, if requested"
    )
    notes: list[Note] | list[list[Note]] | None = Field(
        None, description="regard only: sentences with problems, if any"
    )


class TranslatedFile(BaseModel):
    translatedFileUrl: str  # noqa: N815


class Success(BaseModel):
    success: bool


class Health(BaseModel):
    status: Literal["ok", "unavailable"]
    error: Annotated[str | None, Field(description="why the server is not ready")] = None


# --- DeepL


class DeepLTranslateRequest(BaseModel):
    text: Annotated[
        list[str],
        BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
        Field(min_length=1, description=f"by default at most {_DEFAULT.segments} texts"),
    ]
    target_lang: str
    source_lang: str | None = None
    tag_handling: Literal["", "html", "xml"] | None = None
    ignore_tags: Annotated[Names, Field(description="XML elements that are not translated")] = []
    splitting_tags: Annotated[Names, Field(description="XML elements that end a sentence")] = []
    glossary_id: str | None = None


class DeepLTranslation(BaseModel):
    detected_source_language: str
    text: str
    billed_characters: int
    unplaced_terms: list[str] | None = Field(None, description="regard only: glossary terms that could not be placed")


class DeepLTranslations(BaseModel):
    translations: list[DeepLTranslation]


class DeepLLanguage(BaseModel):
    language: str
    name: str
    supports_formality: bool | None = None


class Usage(BaseModel):
    character_count: Annotated[int, Field(description="of this token today, or of the server since its start")]
    character_limit: Annotated[int, Field(description="the quota of this token; 10^12 without a quota, as DeepL does")]


class GlossaryRequest(BaseModel):
    name: str
    source_lang: str
    target_lang: str
    entries: Annotated[str, Field(description="one entry per line: source term, tab or comma, target term")]
    entries_format: Literal["tsv", "csv"]


class Glossary(BaseModel):
    glossary_id: str
    name: str
    ready: bool = True
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class Glossaries(BaseModel):
    glossaries: list[Glossary]


class GlossaryPair(BaseModel):
    source_lang: str
    target_lang: str


class GlossaryPairs(BaseModel):
    supported_languages: list[GlossaryPair]


# --- what-ifs: each is made into the change of the same name in regard.look


class ChangeOf(Strict):
    model_config = ConfigDict(strict=True)


Position = Annotated[int, Field(ge=0, le=10_000, description="token of the source, from 0")]
Row = Annotated[int, Field(ge=0, le=10_000, description="token of the target, from 0")]
Head = Annotated[int | None, Field(ge=0, le=10_000, description="this head only; default: all heads")]


class Mask(ChangeOf):
    """Hides a token of the source."""

    kind: Literal["mask"]
    position: Position


class Temperature(ChangeOf):
    """Divides the scores; below 1 is sharper."""

    kind: Literal["temperature"]
    value: Annotated[float, Field(ge=0.001, le=1000)]


class SetRow(ChangeOf):
    """The target token t attends only to the source token position, or with these weights."""

    kind: Literal["set-row"]
    t: Row
    position: Position | None = None
    weights: list[Annotated[float, Field(ge=0, le=1)]] | None = Field(
        None, max_length=10_000, description="one for each source token, instead of position"
    )
    head: Head = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.position is None) == (self.weights is None):
            raise ValueError("a set-row change needs either position or weights")
        return self


class ShiftRow(ChangeOf):
    """Moves the weights of the target token t to the right."""

    kind: Literal["shift-row"]
    t: Row
    by: Annotated[int, Field(ge=-10_000, le=10_000, description="how far, in source tokens")]
    head: Head = None


class Silence(ChangeOf):
    """Removes an attention module, or one of its heads."""

    kind: Literal["silence"]
    name: Annotated[str, Field(description="attention module, as in a trace")]
    head: Head = None


Change = Annotated[Mask | Temperature | SetRow | ShiftRow | Silence, Field(discriminator="kind")]

# --- /api/v1


class ModelRequest(Strict):
    model: Model = None


class SentenceRequest(ModelRequest):
    text: Annotated[str, Field(description="one sentence")]


class SearchRequest(SentenceRequest):
    beam: Whole | None = Field(None, ge=1, description=f"beam width of the search, by default at most {_DEFAULT.beam}")
    changes: list[Change] | None = Field(
        None,
        description=f"what-ifs, by default at most {_DEFAULT.changes}",
        examples=[[{"kind": "mask", "position": 3}, {"kind": "temperature", "value": 0.5}]],
    )


class LookRequest(SearchRequest):
    target: Pieces | None = Field(
        None, description="the translation to inspect, as text or pieces; default: the model's own"
    )
    prefix: Pieces | None = Field(
        None, description="the start of the translation, as text or pieces; not together with target"
    )


class Part(Strict):
    layers: Annotated[Numbers | None, Field(description="return the attention of these layers only, from 0")] = None
    heads: Annotated[Numbers | None, Field(description="return these heads only, from 0")] = None


class TraceRequest(Part, LookRequest):
    by: str | None = Field(
        None,
        description="return an attribution as well: from which source words each target word came, by one of the "
        "model's `methods`; not together with changes",
        examples=["alti"],
    )
    against: str | None = Field(
        None, description="with a gradient or occlusion method: why each word was written and not this word or piece"
    )


class BeamRequest(Part, SearchRequest):
    pass


class PathRequest(LookRequest):
    t: Annotated[Step, Field(description="token of the target, or with an encoder module as name, of the source")] = 0
    name: str | None = Field(
        None, description="an attention module; with one of the encoder, the encoder's layers are shown"
    )


class StepRequest(PathRequest):
    head: Annotated[Whole, Field(le=1000)] = 0


class AlternativesRequest(SentenceRequest):
    prefix: Annotated[Pieces, Field(description="the start of the translation, as text or pieces")]
    most: Annotated[Whole, Field(ge=1, le=50)] = 8


class CaptionRequest(ModelRequest):
    nbest: Annotated[Whole, Field(ge=1, description=f"by default at most {_DEFAULT.alternatives + 1}")] = 1
    beam: Annotated[Whole | None, Field(ge=1, description=f"by default at most {_DEFAULT.beam}")] = None


class ExampleRequest(ModelRequest):
    number: Annotated[Whole, Field(le=999_999)] = 0


class Pivot(BaseModel):
    id: str
    source: dict[str, str]
    target: dict[str, str]
    through: list[str] = Field(description="the models of both halves")


class Models(BaseModel):
    models: list[dict[str, Any]]
    pivots: list[Pivot] = Field(description="pairs without a model, which are translated through English")


class HeadError(BaseModel):
    layer: int
    head: int
    aer: Annotated[float, Field(description="alignment error rate")]


class HeadErrors(BaseModel):
    sentences: int
    heads: list[HeadError]


class HeadDrop(BaseModel):
    name: str
    head: int
    drop: Annotated[float, Field(description="of the log-probability without this head")]


class Worth(BaseModel):
    heads: list[HeadDrop]


class Alternative(BaseModel):
    text: str | None = None
    piece: str
    probability: float


class Alternatives(BaseModel):
    alternatives: list[Alternative]


class Hypothesis(BaseModel):
    text: str
    score: float
    logprob: float


class CaptionWord(BaseModel):
    text: str
    logprob: float
    gate: Annotated[float | None, Field(description="beta, the gate on the context, if the model has one")] = None
    weights: Annotated[list[list[float]], Field(description="over the grid, row by row; they sum to 1")]


class Caption(BaseModel):
    caption: str
    finished: Annotated[str, Field(description="end, or length if it was cut off")]
    nbest: Annotated[list[Hypothesis], Field(description="best first")]
    grid: Annotated[list[int], Field(min_length=2, max_length=2, description="rows and columns")]
    words: list[CaptionWord]
    trace: Annotated[dict[str, Any], Field(description="as regard.look.Trace reads it")]


class Example(BaseModel):
    number: int
    caption: Annotated[str, Field(description="the reference caption")]
    png: Annotated[str, Field(description="the picture in base64")]
