# SPDX-License-Identifier: Apache-2.0
"""What tests of libcairn's files compare and expect."""
import pytest

import rig
from library import LaneError


def read(path):
    return rig.read_file(path)


def data_of(seed, size):
    return rig.seeded_bytes(seed, 1 << 16) * (size // (1 << 16)) + rig.seeded_bytes(seed, size % (1 << 16))


def expect_error(number, call, *arguments, **options):
    with pytest.raises(LaneError) as caught:
        call(*arguments, **options)
    assert caught.value.errno == number, caught.value
    assert caught.value.strerror, "an error has a cause"
    return caught.value.strerror
