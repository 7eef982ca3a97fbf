# SPDX-License-Identifier: Apache-2.0
"""What a user sees who is neither root nor the owner of a mount."""
import os

import rig

OTHER = 1234


def seen_by_other(mount, *path):
    """What that user sees there: its bytes, or the error. From the mount, as the way there is closed to that user."""

    def look():
        os.chdir(mount.mnt)
        os.setgroups([])
        os.setgid(OTHER)
        os.setuid(OTHER)
        name = os.path.join(*path)
        try:
            return sorted(os.listdir(name)) if os.path.isdir(name) else rig.read_file(name).decode()
        except OSError as error:
            return error.errno

    return rig.in_child(look)
