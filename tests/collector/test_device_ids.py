from __future__ import annotations

import pytest

from collector.device_ids import NodeDevice, find_device, parse_device_id

CARD = "GPU-5a1b2c3d-0000-1111-2222-333344445555"
OTHER = "GPU-5a1b2c3d-0000-1111-2222-333344446666"
SLICE = "MIG-99999999-0000-1111-2222-333344445555"
KNOWN = [
    NodeDevice(CARD, minor=0),
    NodeDevice(OTHER, minor=1),
    NodeDevice(SLICE, minor=None, parent_uuid=CARD, gpu_instance=7, compute_instance=0),
]


@pytest.mark.parametrize(
    ("spelled", "uuid", "is_replica"),
    [
        (CARD, CARD, False),
        (CARD.replace("GPU-5a", "GPU-5A"), CARD, False),
        (f"{CARD}::2", CARD, True),
        (f"{OTHER}-0", OTHER, True),
        (SLICE, SLICE, False),
        (f"{SLICE}::1", SLICE, True),
        (f"MIG-{CARD}/7/0", SLICE, False),
        ("nvidia1", OTHER, False),
        ("nvidia1/vgpu3", OTHER, True),
        ("nvidia0/gi7", SLICE, False),
        ("1", OTHER, False),
    ],
)
def test_u02_every_spelling_of_a_device_is_read(spelled: str, uuid: str, is_replica: bool) -> None:
    wanted = parse_device_id(spelled)
    assert wanted is not None
    assert find_device(wanted, KNOWN) == uuid
    assert wanted.is_replica is is_replica


@pytest.mark.parametrize("spelled", ["weird:thing:7", "", "::1", "nvidia", "tpu0", "GPU 0", "nvidia0/gi7/x"])
def test_u02_what_is_no_spelling_is_nothing(spelled: str) -> None:
    assert parse_device_id(spelled) is None


@pytest.mark.parametrize("spelled", ["nvidia9", "nvidia0/gi3", "MIG-GPU-0/1/0", "GPU-5a1b2c3d"])
def test_a_device_that_the_node_does_not_have_is_not_found(spelled: str) -> None:
    wanted = parse_device_id(spelled)
    assert wanted is not None
    assert find_device(wanted, KNOWN) is None
