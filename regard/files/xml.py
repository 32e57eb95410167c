"""Untrusted XML, read safely with expat: no tree is built, no DTD is fetched, and DTD declarations and deep nesting are
refused."""

from xml.parsers import expat

from regard.errors import DataError

DEEPEST = 100  # levels of nesting; TMX and XLIFF need about ten


class InertXML:
    """Calls `begin` and `end` for the elements of a file with the root element `root`. Names include their prefix."""

    root: str
    path: list[str]  # the open elements, without prefixes

    def __init__(self, encoding: str | None = None) -> None:
        self.path = []
        self.parser = expat.ParserCreate(encoding)
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.parser.EntityDeclHandler = self._declares
        self.parser.AttlistDeclHandler = self._declares
        self.parser.SkippedEntityHandler = self._skipped

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins; it is not on the path yet."""
        raise NotImplementedError

    def end(self, name: str) -> None:
        """An element ends; it is no longer on the path."""
        raise NotImplementedError

    def where(self) -> str:
        """The beginning of an error message."""
        return f"{self.root.upper()}: "

    def _begin(self, name: str, attributes: dict[str, str]) -> None:
        bare = name.rpartition(":")[2]
        if not self.path and bare != self.root:
            raise DataError(f"{self.where()}the root element must be <{self.root}>; got <{name[:40]}>.")
        if len(self.path) >= DEEPEST:
            raise DataError(
                f"{self.where()}elements are nested more than {DEEPEST} levels deep; remove them from the file."
            )
        self.begin(name, attributes)
        self.path.append(bare)

    def _end(self, name: str) -> None:
        self.path.pop()
        self.end(name)

    def _declares(self, name: str, *meaning: object) -> None:
        raise DataError(
            f"{self.where()}the DOCTYPE declares an entity or attributes ({name[:40]!r}), which are not allowed: they "
            "can grow without bound; remove them and write the characters themselves."
        )

    def _skipped(self, name: str, parameter: bool) -> None:
        if not parameter:
            raise DataError(
                f"{self.where()}&{name[:40]}; is not defined, since no DTD is fetched; write the character itself."
            )
