"""The questions that the data can be asked, and the only module of this room that reads the store.

An answer reads its parameters, gathers what it needs, and leaves judging and wording to the pure modules. What was
gathered and answered is remembered until the data change, so that equal questions run once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from time import time as now
from typing import TYPE_CHECKING

from analysis import asking, family_edits, fleet, job, traced_job, traced_week, waste, weekly
from analysis.asking import WINDOW_PARAMETERS, Asked
from analysis.gather import gather_evidence
from analysis.gpu_choices import case_of, choices_document
from analysis.gpu_file import read_catalogue
from analysis.holdings import known_span, last_held_at
from analysis.identity import PSEUDONYMS, Naming, naming, without
from analysis.inventory import node_facts
from analysis.memory import Memory
from analysis.recommend import advise, recommend_document
from analysis.repetition import FamilyReport, families_document, find_families
from analysis.rows import resolution
from analysis.settings import GPUS_FILE
from analysis.study import Gathered, Study, gather, gather_attempts, judge, resolve
from analysis.surroundings import gather_surroundings
from analysis.tracing import Rows
from analysis.window import edge, week_of, week_window, weeks_before, weeks_between
from warehouse.contract.errors import BadUseError, NotFoundError
from warehouse.contract.metrics import Rung
from warehouse.contract.units import iso
from warehouse.settings import CLUSTER_ZONE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from zoneinfo import ZoneInfo

    from analysis.evidence import AttemptEvidence
    from analysis.holdings import Span
    from warehouse.client import Answer, Document, Parameters
    from warehouse.contract.settings import Settings
    from warehouse.queries import Tables
    from warehouse.sight import Sight

ASKED = (*WINDOW_PARAMETERS, "rung")
_MOST_JOBS = 10_000
_MOST_NAMED = 10


_gathered: Memory[Gathered] = Memory(4)
_documents: Memory[Document] = Memory(64)


@dataclass(frozen=True, slots=True)
class _Question:
    """One asking: the store as it stands, the settings, and the parameters."""

    tables: Tables
    version: str
    settings: Settings
    parameters: Parameters
    fleet_version: str = ""
    naming: Naming = field(default_factory=Naming)

    def known_span(self) -> Span | None:
        """Give the span of the data, which is the same for all who ask, whatever they may see."""
        span, end = known_span(self.tables.fleet or self.tables), self.tables.samples_end_at
        return span if span is None or end is None else (span[0], min(span[1], end))

    def of_fleet(self) -> _Question:
        """Ask of all devices: for totals that name nobody."""
        if self.tables.fleet is None:
            return self
        return replace(self, tables=self.tables.fleet, version=self.fleet_version)

    def require_samples(self, until: float) -> None:
        """Refuse a window that ends where samples are out of reach: what is not seen must not look idle or unknown."""
        end = self.tables.samples_end_at
        if end is not None and until > end:
            raise BadUseError(f"until: whole sealed days are read here, and they end at {iso(end)}; ask the server")

    def resolution(self, since: float, until: float) -> str:
        """Say what is left of the time between two instants (``rows.resolution``)."""
        return resolution(self.tables.rolled, since, until)

    @property
    def zone(self) -> ZoneInfo:
        """Give the zone of the answer's days and weeks."""
        return asking.read_zone(self.parameters, self.settings, self.settings[CLUSTER_ZONE])

    def asked(self) -> Asked:
        """Give window, zone and rung."""
        return asking.read_asked(self.parameters, self.settings, self.settings[CLUSTER_ZONE])

    def gather(self, edges: tuple[float, ...], known: Span) -> Gathered:
        """Gather what is known between the edges, or remember it."""
        key = (self.version, edges, _fingerprint(self.settings))
        return _gathered.get(key, lambda: self._gather(edges, known))

    def _gather(self, edges: tuple[float, ...], known: Span) -> Gathered:
        found = gather(self.tables, edges, known, self.settings)
        # Who sees some jobs alone cannot tell the time that others held a device from time that nobody held it.
        return found if self.tables.fleet is None else replace(found, inventory=None)

    def study(self, *, by_week: bool = False) -> Study | None:
        """Study the window that was asked for, in one piece or by week; None: the store is empty."""
        asked, known = self.asked(), self.known_span()
        if known is None:
            return None
        since, until = resolve(known, asked.window)
        self.require_samples(until)
        weeks = weeks_between(max(since, known[0]), min(until, known[1]), asked.zone) if by_week else []
        inner = (edge(week.since_at) for _, week in weeks)
        gathered = self.gather((since, *(at for at in inner if since < at < until), until), known)
        return judge(gathered, self.settings, rung=asked.rung)


def _waste(question: _Question) -> Document:
    asked, by = question.asked(), asking.read_choice(question.parameters, "by", waste.GROUPINGS, "user")
    study = question.study(by_week=by == "week")
    if study is None:
        return waste.nothing_wasted(asked.window, by, asked.zone)
    document = waste.waste_document(study, by, asked.zone, naming=question.naming)
    return document | {"resolution": question.resolution(*study.span())}


def _jobs(question: _Question) -> Document:
    limit = asking.read_count(question.parameters, "limit", 200, _MOST_JOBS)
    offset = asking.read_count(question.parameters, "offset", 0, 2**31)
    study = question.study()
    rows = [] if study is None else waste.waste_rows(study, "job", question.zone, study.inside())
    return {**_header(question, study), **job.jobs_document(rows, limit, offset)}


def _families(question: _Question) -> Document:
    study = question.study()
    return {
        **_header(question, study),
        **families_document(find_families(_evidence(question, study), question.settings)),
    }


def _recommend(question: _Question) -> Document:
    study = question.study()
    evidence = _evidence(question, study, whole=True)
    report = find_families(evidence, question.settings)
    return {**_advice(question, study, evidence, report), **_header(question, study)}


def _advice(
    question: _Question,
    study: Study | None,
    evidence: list[AttemptEvidence],
    report: FamilyReport,
    at: int | None = None,
) -> Document:
    since, until = (0.0, 0.0) if study is None else study.span(at)
    # Where nothing is known by any rung there is nothing to judge by one: every remedy refuses.
    rung = Rung.DRIVER_UTIL if study is None or study.rung is None else study.rung
    nodes = () if study is None else node_facts(study.gathered.inventory, (since, until))
    catalogue = read_catalogue(question.settings[GPUS_FILE])
    advice = advise(evidence, report, rung, since, until, question.settings, nodes, catalogue=catalogue)
    return recommend_document(advice, question.settings)


def _evidence(
    question: _Question, study: Study | None, window: int | None = None, *, whole: bool = False
) -> list[AttemptEvidence]:
    """Give what is known of each attempt; ``whole``: hosts, boards, events and ranks too, as remedies want them."""
    if study is None:
        return []
    around = gather_surroundings(question.tables, study.span(window)) if whole else None
    return gather_evidence(study, question.settings, window, around)


def _gpu_options(question: _Question) -> Document:
    """Give every GPU for a family, or for a job outside any, named by its id or key."""
    study = question.study()
    evidence = _evidence(question, study, whole=True)
    report = find_families(evidence, question.settings)
    name, rung = question.parameters.get("id", ""), None if study is None else study.rung
    if not name:
        raise BadUseError("id: name a family (`trueload families` lists them) or a job by its key")
    case = case_of(name, evidence, report, rung, read_catalogue(question.settings[GPUS_FILE]))
    header = _header(question, study)
    known = {word: header[word] for word in ("since", "until", "zone", "rung")}
    return known | choices_document(case, question.settings)


def _header(question: _Question, study: Study | None) -> Document:
    """Give what every document says of itself: window, zone, rung, coverage."""
    asked = question.asked()
    total = None if study is None else study.total()
    since, until = (asked.window.since_at, asked.window.until_at) if study is None else study.span()
    return {
        "since": iso(since),
        "until": iso(until),
        "zone": str(asked.zone),
        "rung": None if study is None else study.rung,
        "resolution": None if study is None else question.resolution(since or 0.0, until or 0.0),
        "coverage_ratio": None if total is None else total.coverage_ratio,
        "used_ratio": None if total is None else total.used_ratio,
    }


def _fleet(question: _Question) -> Document:
    asked, study = question.asked(), question.of_fleet().study()
    if study is None:
        return fleet.empty_fleet(asked.window, asked.zone)
    events = fleet.gather_events(question.tables, *study.span())
    document = fleet.fleet_document(study, events, asked.zone, question.settings)
    # A node is often one person's: how busy it was is for those who may know whose.
    document |= {"resolution": question.resolution(*study.span())}
    return document if question.tables.fleet is None else {**document, "by_node": []}


def _analyze(question: _Question) -> Document:
    study = question.study()
    evidence = _evidence(question, study, whole=True)
    report = find_families(evidence, question.settings)
    advice = _advice(question, study, evidence, report)
    found, refused = advice["recommendations"], advice["refusals"]
    return {
        **_header(question, study),
        "attempts": len(evidence),
        "families": len(report.families),
        "recommendations": len(found) if isinstance(found, list) else 0,
        "refusals": len(refused) if isinstance(refused, list) else 0,
    }


def _job(question: _Question) -> Document:
    tables, settings, asked = question.tables, question.settings, question.asked()
    key = _job_key(tables, question.parameters.get("id", ""))
    attempts = job.job_attempts(tables, key)
    keys = list(attempts.values("attempt_key"))
    known = question.known_span()
    evidence: list[AttemptEvidence] = []
    rung, line = None, []
    window = None if known is None else job.life(attempts, resolve(known, asked.window), known[1])
    if window is not None and known is not None:
        question.require_samples(window[1])
        study = judge(gather_attempts(tables, keys, window, known, settings), settings, rung=asked.rung)
        evidence, rung = gather_evidence(study, settings), study.rung
        line = job.timeline(tables, keys, window)
    family = _family_of(question, key)
    document = job.job_document(job.job_facts(tables, key), attempts, evidence, rung, line, family, settings)
    return traced_job.added_to(document, None if window is None else Rows(tables, window, keys))


def _job_key(tables: Tables, name: str) -> str:
    if not name:
        raise BadUseError("id: name a job by its key (alex/679694#0) or its scheduler's id")
    keys = job.find_jobs(tables, name)
    if not keys:
        raise NotFoundError(f"no job {name!r} in the store; `trueload waste --by job` lists them")
    if len(keys) > 1:
        more = "" if len(keys) <= _MOST_NAMED else f" and {len(keys) - _MOST_NAMED} more"
        raise BadUseError(f"id: {name!r} may be {', '.join(keys[:_MOST_NAMED])}{more}; give the whole key")
    return keys[0]


def _family_of(question: _Question, job_key: str) -> str | None:
    """Give the family of a job among all jobs in the store."""
    known = question.known_span()
    if known is None:
        return None
    study = judge(question.gather(known, known), question.settings)
    return find_families(_evidence(question, study), question.settings).family_of().get(job_key)


def _weekly(question: _Question) -> Document:
    tables, settings, zone = question.tables, question.settings, question.zone
    usual = weekly.USUAL_AUDIENCE if tables.fleet is None else "user"
    audience = asking.read_choice(question.parameters, "audience", weekly.AUDIENCES, usual)
    known = question.known_span()
    if known is None:
        raise NotFoundError("no complete week: the store is empty; import something first")
    name = question.parameters.get("week") or _last_complete_week(tables, known, zone)
    first = edge(week_window(name, zone).since_at)
    weeks = [
        (week, window)
        for week, window in weeks_before(name, weekly.TREND_WEEKS, zone)
        if edge(window.until_at) > known[0] or edge(window.since_at) == first
    ]
    edges = (*(edge(window.since_at) for _, window in weeks), edge(weeks[-1][1].until_at))
    question.require_samples(edges[-1])
    at = len(weeks) - 1
    study = judge(question.gather(edges, known), settings, rung=question.asked().rung, judged=at)
    evidence = gather_evidence(study, settings, at, gather_surroundings(tables, study.span(at)))
    report = find_families(evidence, settings)
    events = fleet.gather_events(tables, *study.span(at))
    document = weekly.weekly_document(
        study,
        [week for week, _ in weeks],
        zone,
        fleet.fleet_document(study, events, zone, settings, at),
        families_document(report),
        {**_advice(question, study, evidence, report, at), "rung": study.rung},
        traced_week.week_document(evidence, Rows(tables, study.span(at))),
    )
    return document | {"audience": audience, "resolution": question.resolution(*study.span(at))}


def _last_complete_week(tables: Tables, known: Span, zone: ZoneInfo) -> str:
    """Give the last week that is over and in which anybody held a GPU."""
    running = week_window(week_of(now(), zone), zone)
    held = last_held_at(tables, edge(running.since_at), known[1])
    if held is None:
        raise NotFoundError("no complete week with data yet; name one that is running with --week")
    # A millisecond before: datetime rounds to microseconds, and up to the next week where held ends with its own.
    return week_of(held - 0.001, zone)


@dataclass(frozen=True, slots=True)
class _Remembered:
    """A question by its name: checks the names of the parameters, and answers equal questions to the same data once."""

    name: str
    known: tuple[str, ...]
    answer: Callable[[_Question], Document]

    def __call__(self, store: Sight, settings: Settings, parameters: Parameters) -> Document:
        asking.check_names(parameters, (*self.known, PSEUDONYMS))
        shown = naming(settings, parameters)
        version, fleet_version = (f"{one}{shown.fingerprint}" for one in (store.data_version(), store.fleet_version()))

        def work() -> Document:
            with store.snapshot() as tables:
                seen = replace(tables, job=shown.jobs(tables.job)) if shown.changes_names else tables
                return self.answer(_Question(seen, version, settings, without(parameters), fleet_version, shown))

        return _documents.get(self._key(version, settings, parameters), work)

    def at_hand(self, store: Sight, settings: Settings, parameters: Parameters) -> Document | None:
        """Give the answer if it is known already."""
        version = f"{store.data_version()}{naming(settings, parameters).fingerprint}"
        return _documents.at_hand(self._key(version, settings, parameters))

    def _key(self, version: str, settings: Settings, parameters: Parameters) -> Hashable:
        return (version, self.name, *sorted(parameters.items()), _fingerprint(settings))


def _fingerprint(settings: Settings) -> str:
    return f"{sorted(settings.values.items())!r}{family_edits.fingerprint(settings)}"


ANSWERS: Mapping[str, Answer] = {
    "waste": _Remembered("waste", (*ASKED, "by"), _waste),
    "jobs": _Remembered("jobs", (*ASKED, "limit", "offset"), _jobs),
    "families": _Remembered("families", ASKED, _families),
    "recommend": _Remembered("recommend", ASKED, _recommend),
    "gpu_options": _Remembered("gpu_options", (*ASKED, "id"), _gpu_options),
    "job": _Remembered("job", (*ASKED, "id"), _job),
    "fleet": _Remembered("fleet", ASKED, _fleet),
    "weekly": _Remembered("weekly", ("week", "zone", "rung", "audience"), _weekly),
    "analyze": _Remembered("analyze", ASKED, _analyze),
}
"""Every question with its answer."""
