"""Codes of languages: their English names, and the spellings by which clients ask for them."""

UNDETERMINED = "und"  # the code of a side that the run does not name, as for made-up corpora

NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian",
    "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi",
    "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian",
    "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean", "la": "Latin",
    "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian",
    "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese", "nb": "Norwegian Bokmål", "ne": "Nepali",
    "nl": "Dutch", "nn": "Norwegian Nynorsk", "no": "Norwegian", "pa": "Punjabi", "pl": "Polish", "ps": "Pashto",
    "pt": "Portuguese", "pt-BR": "Portuguese (Brazil)", "ro": "Romanian", "ru": "Russian", "si": "Sinhala",
    "sk": "Slovak", "sl": "Slovenian", "so": "Somali", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish",
    "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian",
    "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese", "zh-Hans": "Chinese", "zh-Hant": "Chinese (traditional)",
    UNDETERMINED: "Undetermined",
}  # fmt: skip

_ALIASES = {"pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant", "iw": "he", "in": "id", "": UNDETERMINED}
_SPELLED = {code.lower(): code for code in NAMES}


def canonical(code: str) -> str:
    """The code as it is written here: case does not matter, nor `_` for `-`, nor the old aliases.

    >>> canonical("ZH_hans"), canonical("pb"), canonical("EN-gb")
    ('zh-Hans', 'pt-BR', 'en-gb')
    """
    folded = code.replace("_", "-").lower()
    folded = _ALIASES.get(folded, folded)
    return _SPELLED.get(folded.lower(), folded)


def among(code: str, known: list[str]) -> str | None:
    """The known code that `code` asks for, its region or script left away where only that fits; else None.

    >>> among("EN-GB", ["de", "en"])
    'en'
    """
    wanted = canonical(code)
    if wanted in known:
        return wanted
    short = canonical(wanted.partition("-")[0])
    return short if short in known else None


def name(code: str) -> str:
    """The English name of a code; a code without one is its own name."""
    return NAMES.get(code, code)
