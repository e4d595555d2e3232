"""What is known about each attempt, for families, remedies and the page of a job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.activity import QUALITIES, UNKNOWN
from analysis.evidence import AttemptEvidence, Reading
from analysis.frames import Floats, add_by, none_if_nan
from analysis.pauses import idle_stretches
from analysis.sources import READINGS
from analysis.study import job_keys
from analysis.summaries import RUNG_COLUMNS
from analysis.surroundings import Surroundings
from warehouse.contract.model import AttemptState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.frames import Ints
    from analysis.study import Study
    from warehouse.contract.settings import Settings

_OWN_WORDS = (
    *("name", "user", "account", "partition", "qos", "command", "image", "work_dir", "array_job_id", "het_job_id"),
    *("interactive", "gpu_model", "comment"),
)


def gather_evidence(
    study: Study, settings: Settings, window: int | None = None, around: Surroundings | None = None
) -> list[AttemptEvidence]:
    """Give the evidence of every attempt that held a GPU in a window (None: in any), in order of start.

    ``around`` adds what is known beside the use of devices; without it that is absent.
    """
    around = Surroundings() if around is None else around
    held, inside = study.held, study.inside(window)
    accounts = study.books.add_up(np.where(inside, held.attempt[study.entries.holding], -1), len(held.attempt_keys))
    pauses = (
        idle_stretches(study.evidence.activity, held, study.rung, study.span(window), settings) if study.rung else {}
    )
    seen = _look(study, window)
    devices, nodes, keys = held.pick("device_uuid"), held.pick("node"), job_keys(held)
    found: list[AttemptEvidence] = []
    for attempt, own in _by_attempt(held.attempt, np.unique(study.entries.holding[inside])).items():
        key, row = held.attempt_keys[attempt], int(held.row[own[0]])
        uuids = _distinct(devices, own)
        numbers = {name: none_if_nan(held.words.numbers(name)[row]) for name in held.words.number_names}
        summary = study.evidence.summaries.get(key)
        peak = seen.memory_bytes(attempt)
        start_at = _or(numbers["attempt_start_at"], float(held.start[own].min()))
        clipped = (
            max(start_at, study.span(window)[0]),
            min(_or(numbers["attempt_end_at"], np.inf), study.span(window)[1]),
        )
        node_names = _distinct(nodes, own)
        found.append(
            AttemptEvidence(
                attempt_key=key,
                job_key=keys[own[0]],
                scheduler_job_id=held.words.values("scheduler_job_id")[row] or _scheduler_id(keys[own[0]]),
                cluster=held.words.values("cluster")[row] or keys[own[0]].partition("/")[0],
                state=AttemptState(held.words.values("state")[row] or AttemptState.UNKNOWN),
                start_at=start_at,
                end_at=numbers["attempt_end_at"],
                gpu_count=_gpu_count(study, own),
                node_count=None if numbers["node_count"] is None else int(numbers["node_count"]),
                gpu_seconds=accounts[attempt],
                nodes=node_names,
                device_uuids=uuids,
                device_memory_bytes=numbers["device_memory_bytes"],
                memory_peak_bytes=peak if peak is not None or summary is None else summary.memory_peak_bytes,
                time_limit_seconds=numbers["time_limit_seconds"],
                ladder=seen.ladder(study, attempt, accounts[attempt].allocated, uuids),
                idle_stretches=pauses.get(attempt, ()),
                submit_at=numbers["submit_at"],
                cpu_count=numbers["cpu_count"],
                requested_cpu_count=numbers["requested_cpu_count"],
                requested_memory_bytes=numbers["requested_memory_bytes"],
                host=_of(around.host.get(key, {}), clipped[1] - clipped[0]),
                board=_of(around.board.get(key, {}), accounts[attempt].allocated),
                events=around.events_of(key, uuids, node_names, clipped),
                ranks=around.ranks.get(key, ()),
                profiled_kernels=around.kernels.get(key),
                work=around.works.get(key),
                **{name: held.words.values(name)[row] for name in _OWN_WORDS},
            )
        )
    return sorted(found, key=lambda one: (one.start_at, one.attempt_key))


def _of(readings: Mapping[str, Reading], whole_seconds: float) -> dict[str, Reading]:
    """Give readings whose coverage stands in seconds as shares of a whole."""
    if whole_seconds <= 0:
        return {}
    shares = ((name, min(one.coverage_ratio / whole_seconds, 1.0), one) for name, one in readings.items())
    return {name: replace(one, coverage_ratio=share) for name, share, one in shares}


@dataclass(frozen=True, slots=True)
class _Seen:
    """By attempt: of each reading the sum of value x GPU-seconds and the GPU-seconds covered; the memory peak."""

    sums: Mapping[str, Floats]
    covered: Mapping[str, Floats]
    peaks: Floats

    def memory_bytes(self, attempt: int) -> float | None:
        """Give the highest memory seen on any device of an attempt."""
        return none_if_nan(self.peaks[attempt])

    def ladder(self, study: Study, attempt: int, allocated: float, devices: Sequence[str]) -> dict[str, Reading]:
        """Give what is known of each rung and quality: from samples where there are any, else from means."""
        summary = study.evidence.summaries.get(study.held.attempt_keys[attempt])
        sources = study.gathered.sources
        found: dict[str, Reading] = {}
        for name in READINGS:
            covered = float(self.covered[name][attempt])
            mean = None if summary is None else summary.means.get(name)
            if covered > 0:
                names = sorted({source for device in devices for source in sources[name].get(device, ())})
                value = float(self.sums[name][attempt]) / covered
                found[name] = Reading(value, "+".join(names), min(covered / allocated, 1.0))
            elif mean is not None:
                found[name] = Reading(mean.value, mean.source, mean.coverage_ratio, mean.assumed)
        return found


def _look(study: Study, window: int | None) -> _Seen:
    activity, held = study.evidence.activity, study.held
    within = activity.window == window if window is not None else (activity.window >= 0)
    within &= (activity.window < study.entries.windows) & (activity.holding >= 0) & (activity.covered > 0)
    attempt, size = held.attempt[activity.holding[within]], len(held.attempt_keys)
    weight = held.weight[activity.holding[within]]
    sums: dict[str, Floats] = {}
    covered: dict[str, Floats] = {}
    for rung, name in RUNG_COLUMNS.items():
        known = activity.state[rung][within] != UNKNOWN
        sums[name] = add_by(attempt, activity.busy[rung][within] * weight, size)
        covered[name] = add_by(attempt, activity.covered[within] * weight * known, size)
    for name in QUALITIES:
        sums[name] = add_by(attempt, activity.quality[name][within] * weight, size)
        covered[name] = add_by(attempt, activity.quality_covered[name][within] * weight, size)
    peaks = np.full(size, np.nan)
    np.fmax.at(peaks, attempt, activity.memory_bytes[within])
    return _Seen(sums, covered, peaks)


def _by_attempt(attempt: Ints, holdings: Ints) -> dict[int, Ints]:
    order = holdings[np.argsort(attempt[holdings], kind="stable")]
    starts = np.flatnonzero(np.diff(attempt[order], prepend=-1))
    return {int(attempt[own[0]]): own for own in np.split(order, starts[1:]) if own.size}


def _gpu_count(study: Study, own: Ints) -> float:
    """Give the GPUs that an attempt held: those with a name, or the bare count where that is larger."""
    words = study.held.words
    named: dict[str, float] = {}
    bare = 0.0
    for row in np.unique(study.held.row[own]):
        count = float(words.numbers("gpu_count")[row] * words.numbers("share_ratio")[row])
        device = words.values("device_uuid")[row]
        if device is None:
            bare += count
        else:
            named[device] = max(named.get(device, 0.0), count)
    return max(sum(named.values()), bare)


def _scheduler_id(job_key: str) -> str:
    return job_key.partition("/")[2].rpartition("#")[0] or job_key


def _distinct(values: Sequence[Any], own: Ints) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values[at] for at in own if values[at] is not None))


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value
