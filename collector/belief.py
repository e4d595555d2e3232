"""Which readings are believed: a source that went numb, and a driver that says nothing any more.

After some Xids hardware counters read 0 while the card works on, until whoever reads them begins anew. Exactly 0 for
many rounds while the driver says busy is not an idle card but a numb source: its activity is absent, not 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from warehouse.contract.metrics import CATALOGUE, Rung
from warehouse.contract.units import Unit

if TYPE_CHECKING:
    from collections.abc import Callable

    from collector.aggregate import Moment
    from collector.source import Reading

PLAIN: Final = "driver_util_ratio"
"""What the driver itself says, against which the others are held."""

BUSY_RATIO: Final = 0.5
"""From here on the driver's word leaves no room for exactly nothing: half of its sample slices had a kernel."""

ACTIVITY: Final = frozenset(
    metric.name for metric in CATALOGUE if metric.unit is Unit.RATIO and metric.name.endswith("_active_ratio")
) | {metric.name for metric in CATALOGUE if metric.rung is Rung.ENGINE_ACTIVE}
"""Values that an engine which ran anything cannot have at exactly 0, all of them."""


@dataclass(slots=True)
class NumbSources:
    """Watches for sources that read nothing of a card that the driver says is busy."""

    rounds: int
    tell: Callable[[str, str, str | None], None]
    _zeros: dict[tuple[str, str], int] = field(default_factory=dict)

    def judge(self, found: Mapping[str, Sequence[Reading]]) -> tuple[dict[str, list[Reading]], list[tuple[str, str]]]:
        """Give the readings that are believed, and the (source, device) that should begin anew, each once."""
        busy = {
            reading.device_uuid
            for readings in found.values()
            for reading in readings
            if reading.values.get(PLAIN, 0.0) >= BUSY_RATIO
        }
        believed: dict[str, list[Reading]] = {}
        begin_anew: list[tuple[str, str]] = []
        for source, readings in found.items():
            believed[source] = []
            for reading in readings:
                key = (source, reading.device_uuid)
                if self._count(key, reading, is_busy=reading.device_uuid in busy) == self.rounds:
                    begin_anew.append(key)
                believed[source].append(self._without_activity(reading) if self.is_numb(*key) else reading)
        return believed, begin_anew

    def is_numb(self, source: str, device_uuid: str) -> bool:
        """Say whether a source's activity of a device is not believed now."""
        return self._zeros.get((source, device_uuid), 0) >= self.rounds

    def _count(self, key: tuple[str, str], reading: Reading, *, is_busy: bool) -> int:
        """Count rounds of nothing on a busy card; a card that the driver calls idle proves nothing either way."""
        activity = [value for name, value in reading.values.items() if name in ACTIVITY]
        if not activity:
            return 0
        if any(activity):
            if self._zeros.pop(key, 0) >= self.rounds:
                self.tell("source_believed", key[1], key[0])
            return 0
        if not is_busy:
            if not self.is_numb(*key):
                self._zeros.pop(key, None)
            return 0
        count = self._zeros[key] = self._zeros.get(key, 0) + 1
        if count == self.rounds:
            self.tell("source_unreliable", key[1], f"{key[0]}: reads nothing while the driver says busy")
        return count

    @staticmethod
    def _without_activity(reading: Reading) -> Reading:
        return replace(reading, values={name: v for name, v in reading.values.items() if name not in ACTIVITY})


@dataclass(slots=True)
class Silence:
    """How long no device has given any value, on the monotonic clock."""

    since: float | None = None

    def seconds(self, moment: Moment, found: Mapping[str, Sequence[Reading]], *, has_devices: bool) -> float:
        """Take a round; give the seconds for which nothing was read, 0 where something was or nothing is there."""
        if not has_devices or any(reading.values for readings in found.values() for reading in readings):
            self.since = None
            return 0.0
        self.since = moment.monotonic if self.since is None else self.since
        return moment.monotonic - self.since
