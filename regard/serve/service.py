"""The running server as its endpoints see it: the loaded models, and which of them a request uses."""

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, count, product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from regard.runs.included import FOLDERS, PIVOT
from regard.serve import languages
from regard.serve.access import Access
from regard.serve.layout import Reader
from regard.serve.limits import Limits, RefusedError, busy
from regard.serve.metrics import Metrics
from regard.serve.worker import Worker
from regard.text.languages import without_region
from regard.work import usable_cores

if TYPE_CHECKING:  # it imports FastAPI, which is imported while the models are loading
    from regard.serve import schemas

log = logging.getLogger("regard.serve")
Route = tuple[Worker, ...]  # the translators of a text, each of which reads what the one before has written


def pivot_name(route: Route) -> str:
    """What clients call a translation through English: the names of its models, as in fr-en+en-de."""
    return "+".join(worker.name for worker in route)


class StoredFile(NamedTuple):
    """A translated file, and the time until which it is kept."""

    data: bytes
    name: str
    until: float


class Glossary(NamedTuple):
    """Terms, and how DeepL's API describes them."""

    about: "schemas.Glossary"
    terms: tuple[tuple[str, str], ...]


class Service:
    """The loaded models and what all requests share."""

    def __init__(self, runs: Sequence[str], limits: Limits, access: Access, engine: str = "regard") -> None:
        self.limits = limits
        self.access = access
        self.metrics = Metrics()
        self.files: OrderedDict[str, StoredFile] = OrderedDict()  # oldest first
        self.glossaries: dict[tuple[Hashable, str], Glossary] = {}  # by client and id
        self.held = 0  # bytes of answers that clients have not read yet
        self.stopping = False
        self.suggestions: Path | None = None  # the file that keeps them
        self.unnamed = {"source": "", "target": ""}  # the languages of runs that do not name them
        self.receiving = 0  # pictures and files
        self.workers: dict[str, Worker] = {}  # in the order given; empty while they are loaded
        self.loading = True
        # The threads of a model wait for each other at every operation. With more threads than free cores, each wait
        # lasts until the system schedules the slowest one.
        threads = max(1, (usable_cores() - 1) // max(1, len(runs)))
        self._opened = [Worker(run, limits, self.metrics, engine, threads) for run in runs]  # loaded in parallel
        self.reader = Worker("reader", limits, self.metrics, load=Reader)  # of all that is not a short plain text
        self.metrics.held.set_function(lambda: self.held)

    def open(self) -> None:
        """Wait until every model is loaded, and start them; raises the first loading error."""
        loaded: dict[str, Worker] = {}
        for worker in self._opened:
            worker.open()
            worker.held = lambda: self.held
            names = chain([worker.name], (f"{worker.name}-{number}" for number in count(2)))
            worker.about["id"] = next(name for name in names if name not in loaded)
            loaded[worker.name] = worker
        self.workers = loaded
        self._name_languages()
        self.reader.open()
        for worker in (*loaded.values(), self.reader):
            worker.start()
        self.loading = False

    def _name_languages(self) -> None:
        """Set the languages of runs that do not name them; warn if the operator does not either."""
        left = []
        for worker in self.of_kind("translate").values():
            for side, given in self.unnamed.items():
                if worker.about[side]["code"] == languages.UNDETERMINED:
                    code = languages.canonical(given)
                    worker.about[side] = {"code": code, "name": languages.name(code)}
                    left += [] if given else [worker.run]
        if left:
            log.warning(
                "%s: the run does not name its languages, so they are served as %s; name them with --source-language "
                "and --target-language, or train with data.source_language and data.target_language.",
                ", ".join(dict.fromkeys(left)),
                languages.UNDETERMINED,
            )

    def close(self) -> None:
        """End all model processes; immediately if they are still loading."""
        for worker in (*self._opened, self.reader):
            worker.close(*([0.0] if self.loading else []))

    @property
    def trouble(self) -> str:
        """Why the server is not ready, or an empty string."""
        if self.stopping:
            return "stopping"
        if self.loading:
            return "the models are being loaded"
        return next((f"{name}: {worker.trouble}" for name, worker in self.workers.items() if worker.trouble), "")

    # --- choosing a model; requests get here when all are loaded

    def of_kind(self, kind: str) -> dict[str, Worker]:
        """The models that translate ("translate") or describe pictures ("caption")."""
        return {name: worker for name, worker in self.workers.items() if worker.about["kind"] == kind}

    @cached_property
    def routes(self) -> dict[tuple[str, str], Route]:
        """Each pair of codes and its first translator, then the pairs that two models translate through English."""
        translators = self.of_kind("translate").values()
        found: dict[tuple[str, str], Route] = {}
        for worker in translators:
            found.setdefault((worker.about["source"]["code"], worker.about["target"]["code"]), (worker,))
        for first, second in product(translators, translators):
            source, target = first.about["source"]["code"], second.about["target"]["code"]
            between = {without_region(one["code"]) for one in (first.about["target"], second.about["source"])}
            if between == {PIVOT} and source != target:
                found.setdefault((source, target), (first, second))
        return found

    @cached_property
    def reachable(self) -> dict[str, list[str]]:
        """Source code -> target codes."""
        found: dict[str, list[str]] = {}
        for source, target in self.routes:
            found.setdefault(source, []).append(target)
        return found

    @cached_property
    def targets(self) -> list[str]:
        """The codes of all target languages, without duplicates."""
        return list(dict.fromkeys(code for codes in self.reachable.values() for code in codes))

    def named(self, name: str, kind: str) -> Worker:
        """The model of a kind with this name; the first of the kind if the name is empty."""
        among, does = self.of_kind(kind), {"translate": "translates", "caption": "describes pictures"}[kind]
        if name in FOLDERS and name not in self.workers:
            name = FOLDERS[name]  # en-fr/bahdanau is the model en-fr-bahdanau
        if name and name not in self.workers:
            raise RefusedError(404, f"There is no model {name[:80]!r}; GET /api/v1/models lists them.")
        if name and name not in among:
            raise RefusedError(422, f"The model {name} is not one that {does}; GET /api/v1/models lists the kinds.")
        if not among:
            raise RefusedError(404, f"No loaded model {does}; GET /api/v1/models lists the models and their kinds.")
        return among[name] if name else next(iter(among.values()))

    def route_named(self, name: str) -> Route:
        """The translator of this name, or the two of a name such as fr-en+en-de; the first one if the name is empty."""
        pivoted = {pivot_name(route): route for route in self.routes.values() if route[1:]}
        return pivoted.get(name) or (self.named(name, "translate"),)

    def language(self, code: str, known: list[str]) -> str:
        """The known code that matches a client's code; raises if there is none."""
        wanted = languages.canonical(code)
        for one in (wanted, languages.canonical(without_region(wanted))):  # en-GB is also en
            if one in known:
                return one
        raise RefusedError(400, f"{code[:40]} is not supported")

    # --- work

    @contextmanager
    def receive(self) -> Iterator[None]:
        """Hold a slot while a picture or a file is received; refuse it if all slots are taken."""
        if self.receiving >= self.limits.pictures:
            self.metrics.refused.labels("queue").inc()
            raise busy("pictures and files are arriving")
        self.receiving += 1
        try:
            yield
        finally:
            self.receiving -= 1

    def refusal(self, kind: str, client: Hashable) -> RefusedError | None:
        """Why no model of a kind can take a request, or None if one can."""
        found = [worker.refusal(client) for worker in self.of_kind(kind).values()]
        return found[0] if all(found) and found else None
