"""The language of a text, by its most common words."""

import re

# The code of a language, then common words of it.
_COMMON = """
    de der die das und ist nicht ein eine einen einem einer ich sie er wir zu mit den dem des von auf für dass auch es
    de sind wird haben habe hat war wie bei im zum aus mir mich dir ihr sich nach als um kann was mein wenn
    de wo wer wann warum bitte danke guten hier heute
    en the and of to a in is that it was for you with are this have not be they from what which there would been his
    en her your we he she my do i don t s ll re ve m has had will can as at by on or an if me him them us our who how
    en when where why all no so did does please thanks hello
    es el la los las un una es y que en de por con para no se del como pero más está son lo su sus este esta yo muy qué
    es al mi tu te me le ha hay fue si ya todo nos dónde cómo cuándo quién gracias hola buenos aquí hoy
    fr le la les l des du de d un une est et en dans que qu qui pour pas ne n sur avec sont ce c cette ces nous vous
    fr ils elle mais ou je j tu il au aux être ai à a été se s son sa ses leur par plus on mon ma suis as fait tout
    fr très où es si y t m me te lui quand quel quelle merci bonjour ici
    it il lo la gli le un una è e che di in per non con sono del della dei delle questo questa come ma più anche nel
    it alla ha ho mi si ti io al da se suo molto dov quando quale grazie buongiorno qui oggi
    nl de het een en van is dat niet op te zijn met voor ik je hij aan die er maar ook wordt was we naar in om heeft
    nl als ze mijn dit bij nog uit waar hoe wat wie waarom bedankt goedemorgen hier vandaag
    pt o a os as um uma é e que não de para com em do da dos das no na mais por se como mas está são eu ele ela você
    pt isso seu sua muito foi me ao onde quando quem obrigado olá aqui hoje
"""
NAMES = {
    "de": "German", "en": "English", "es": "Spanish", "fr": "French", "it": "Italian", "nl": "Dutch", "pt": "Portuguese"
}  # fmt: skip
WORDS: dict[str, set[str]] = {}
for _language, *_words in map(str.split, _COMMON.strip().split("\n")):
    WORDS.setdefault(_language, set()).update(_words)
IN_NAMES = "a as d da das de dei del della den der des di do dos du e el en es in l la las le les lo los o os van von y"
_READ = 400  # words of a text that are compared


def without_region(code: str) -> str:
    """The language of a code in lower case, without region and script.

    >>> without_region("EN-GB"), without_region("pt_BR")
    ('en', 'pt')
    """
    return code.replace("_", "-").partition("-")[0].lower()


def english_name(code: str) -> str:
    """The English name of a language that is listed above.

    >>> english_name("pt-BR")
    'Portuguese'
    """
    return NAMES[without_region(code)]


def common_words(text: str, language: str) -> int:
    """How many words of a text are common ones of a language; 0 if the language is not listed.

    >>> common_words("Je ne sais pas.", "fr"), common_words("Je ne sais pas.", "en")
    (3, 0)
    """
    known = WORDS.get(without_region(language), set())
    return sum(map(known.__contains__, re.findall(r"[^\W\d_]+", text.lower())[:_READ]))


def other_language(text: str, own: str) -> str:
    """The code of the language that `text` is in by its most common words, if that is clearly not `own`; else "".

    It is another language if a quarter of all words are common words of it, three times as many as those of `own`, and
    two of them are not words of `own` or parts of names ("de la", "von der"). Short sentences and languages that are
    not listed are not recognised.
    """
    own = without_region(own)
    if own not in WORDS:
        return ""
    words = re.findall(r"[^\W\d_]+", text.lower())[:_READ]
    counts = {language: sum(map(known.__contains__, words)) for language, known in WORDS.items()}
    best = max(counts, key=counts.__getitem__)
    proofs = (set(words) & WORDS[best]) - WORDS[own] - set(IN_NAMES.split())
    plainly = len(proofs) >= 2 and 4 * counts[best] >= len(words) and counts[best] >= 3 * counts[own]
    return best if plainly else ""
