"""Language codes: their English names and their spellings."""

from functools import cache

from langcodes import Language, standardize_tag
from langcodes.tag_parser import LanguageTagError

from regard.errors import ConfigError, brief

UNDETERMINED = "und"  # the code if the run names no language
# The spellings of LibreTranslate: pb is Brazilian Portuguese, zh and zt are the two scripts of Chinese.
_ALIASES = {"pb": "pt-BR", "zh": "zh-Hans", "zt": "zh-Hant", "": UNDETERMINED}
_NAMES = {"zh-Hans": "Chinese", "zh-Hant": "Chinese (traditional)", UNDETERMINED: "Undetermined"}


@cache
def canonical(code: str) -> str:
    """The standard spelling of a code, whatever its case, `_` for `-`, or an old code.

    >>> canonical("ZH_hans"), canonical("pb"), canonical("EN-gb"), canonical("iw")
    ('zh-Hans', 'pt-BR', 'en-GB', 'he')
    """
    code = code.strip()[:40].replace("_", "-")
    alias = _ALIASES.get(code.lower())
    if alias is not None:
        return alias
    try:
        return standardize_tag(code)
    except LanguageTagError:
        return code.lower()


def check_code(setting: str, code: str) -> None:
    """Refuse a code that no language has, such as a country code.

    >>> check_code("to", "jp")
    Traceback (most recent call last):
    ...
    regard.errors.ConfigError: to must be a language code such as en or pt-BR; got 'jp'. Did you mean 'ja' (Japanese)?
    """
    if name(canonical(code)) != canonical(code):
        return
    try:
        near = Language.get(f"und-{code}").maximize().language
    except LanguageTagError:
        near = None
    hint = f" Did you mean '{near}' ({name(near)})?" if near and near not in ("en", UNDETERMINED) else ""
    raise ConfigError(f"{setting} must be a language code such as en or pt-BR; got {brief(code)!r}.{hint}")


@cache
def name(code: str) -> str:
    """The English name of a code; the code itself if it has none."""
    if code in _NAMES:
        return _NAMES[code]
    try:
        found = Language.get(code)
        return found.display_name("en") if found.is_valid() else code
    except LanguageTagError:
        return code
