# SPDX-License-Identifier: Apache-2.0
"""The wall clock that a mount's daemons and verbs see, set by a test: tests/faults/clock.c."""
import os

import rig


class WallClock:
    """Before the mount is mounted."""

    def __init__(self, mount, library, path, **settings):
        self.path = path
        self.set(0)
        mount.env = {**(mount.env or os.environ), "LD_PRELOAD": library, "CLOCK_OFFSET": path, **settings}

    def set(self, offset):
        """So many seconds from the true one; or "OFFSET DRIFT"."""
        rig.write_file(self.path + ".new", str(offset))
        os.rename(self.path + ".new", self.path)
