# SPDX-License-Identifier: Apache-2.0
"""Damage of the view that a chosen reader meets first. tests/faults/view_reads.c is preloaded into the daemon; a shared file says which.

    fault = viewfault.ViewFault(cairn, build, path)    # cairn: a rig.Mount that is not mounted
    fault.arm(site)                                    # one of fault.sites(), which the daemon passed before
"""
import os
import struct
import subprocess

import faultdisk

FRAMES, SITES_MAX, KEYS_MAX, KEY_MAX = 6, 4096, 2, 600  # as in faults/view_reads.c
HEAD = struct.Struct("=QIIIIII")
SITE = struct.Struct(f"=QQ{FRAMES}Q")
SITES_AT = -(-(HEAD.size + KEYS_MAX * (4 + KEY_MAX)) // 8) * 8
LENGTH = SITES_AT + SITES_MAX * SITE.size


def library(build):
    return os.path.join(build, "tests", "faults", "libviewreads.so")


class ViewFault:
    def __init__(self, cairn, build, path):
        self.binary = cairn.binary
        self.map = faultdisk.shared_map(path, LENGTH)
        cairn.prefix = ("env", f"LD_PRELOAD={os.path.abspath(library(build))}", f"VIEW_CONTROL={path}")

    def arm(self, site, skip=0):
        """The next read at the site, but for `skip`, meets damage, which stays until a new view is made."""
        self.map[: HEAD.size] = HEAD.pack(site, skip, 0, 0, 0, self.count(), 0)

    def disarm(self):
        self.arm(0)

    def head(self):
        return HEAD.unpack(self.map[: HEAD.size])

    def fired(self):
        return self.head()[2] > 0

    def healed(self):
        return self.head()[3] > 0

    def count(self):
        return self.head()[5]

    def sites(self):
        """{site: (reads so far, frames)}"""
        found = {}
        for number in range(SITES_MAX):
            row = SITE.unpack_from(self.map, SITES_AT + number * SITE.size)
            if row[0]:
                found[row[0]] = (row[1], row[2:])
        return found

    def name(self, site):
        """The functions that lead there, the innermost first."""
        frames = [f"{frame - 1:#x}" for frame in self.sites()[site][1] if frame]
        done = subprocess.run(["addr2line", "-f", "-e", self.binary, *frames], capture_output=True, text=True)
        return " < ".join(done.stdout.split("\n")[::2][: len(frames)])
