# SPDX-License-Identifier: Apache-2.0
"""Maps of files."""
import ctypes
import itertools
import mmap
import os

from cases_content import pattern
from script import get, in_process, LIBC, opened, put, script


@script
def maps(s):
    put("file", pattern(10_000))
    for flags, prot, access in itertools.product((mmap.MAP_SHARED, mmap.MAP_PRIVATE), (1, 2, 3, 5), (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)):
        def make():
            with opened("file", access) as fd, mmap.mmap(fd, 10_000, flags=flags, prot=prot) as area:
                return area[:] if prot & mmap.PROT_READ else "mapped"
        s.call(f"map {flags} {prot} {access}", make)
    with opened("file", os.O_RDONLY) as fd, mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=3) as area:
        area[0:4] = b"mine"
    s.note("stored privately", get("file")[:4])
    with opened("file") as fd:
        area = mmap.mmap(fd, 10_000)
    area[5:9] = b"SOFT"  # after close
    s.note("before msync", get("file")[5:9])
    area.flush()
    s.note("after msync", get("file")[5:9])
    with opened("file") as fd:
        os.pwrite(fd, b"by write", 100)
        s.note("through the map", area[100:108])
        os.ftruncate(fd, 20_000)
        os.ftruncate(fd, 10_000)
    s.note("past the end of the file, within the page", bytes(mmap_page_end()))
    os.rename("file", "moved")
    area[200:203] = b"mov"
    os.unlink("moved")
    area[300:303] = b"del"
    s.note("without a name", (area[200:203], area[300:303]))
    area.close()
    put("large", pattern(3_000_000)), put("next", b"other")
    with opened("large", os.O_RDONLY) as fd, mmap.mmap(fd, 0, prot=mmap.PROT_READ) as area:
        os.rename("next", "large")
        s.note("replaced", (area[:] == os.pread(fd, 3_000_000, 0) == pattern(3_000_000), get("large")))
    put("empty")
    with opened("empty") as fd:
        s.note("empty", LIBC.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0) != ctypes.c_void_p(-1).value)


def mmap_page_end():
    """The rest of the last page of a file reads as zeros, and what is stored there goes nowhere."""
    size = os.path.getsize("file")
    with opened("file") as fd:
        at = LIBC.mmap(None, 12_288, 3, 1, fd, 0)
        rest = ctypes.string_at(at + size, 12_288 - size)
        ctypes.memset(at + size, 0x41, 12_288 - size)
        LIBC.munmap(ctypes.c_void_p(at), ctypes.c_size_t(12_288))
        return rest[:4]


@script
def map_and_size(s):
    """What was stored through a map and cut off, or behind the end, does not come back."""
    put("file", pattern(10_000))
    with opened("file") as fd:
        area = mmap.mmap(fd, 10_000)
        area[5000:6000] = b"s" * 1000
        os.ftruncate(fd, 5500)
        os.ftruncate(fd, 10_000)
        s.note("cut off", (get("file")[4990:5510], area[4990:5510], bytes(area[5500:9999]).count(0)))
        os.ftruncate(fd, 9000)
        at = LIBC.mmap(None, 12_288, 3, 1, fd, 0)
        ctypes.memset(at + 9000, 0x41, 1000)
        os.ftruncate(fd, 12_000)
        s.note("behind the end, made longer", get("file")[8990:12_000].strip(b"\0") == pattern(10_000)[8990:9000].strip(b"\0"))
        os.ftruncate(fd, 9000)
        ctypes.memset(at + 9000, 0x42, 1000)
        os.pwrite(fd, b"end", 11_000)
        s.note("behind the end, written after", get("file")[9000:11_000] == bytes(2000))
        LIBC.munmap(ctypes.c_void_p(at), ctypes.c_size_t(12_288))
        area.close()
    s.tree("tree")


@script
def shared_map_between_processes(s):
    put("file", bytes(100_000))
    with opened("file") as fd, mmap.mmap(fd, 0) as area:
        def child():
            with opened("file") as mine, mmap.mmap(mine, 0) as other:
                other[70_000:70_005] = b"child"
            return "stored"
        s.note("child", in_process(child))
        s.note("seen", area[70_000:70_005])
        area[10:16] = b"parent"
        area.flush()
        s.note("read", in_process(lambda: get("file")[10:16]))

        def write():
            with opened("file", os.O_WRONLY) as mine:
                os.pwrite(mine, b"written", 50_000)
        in_process(write)
        os.pwrite(fd, b"again", 60_000)
        s.note("written", (area[50_000:50_007], area[60_000:60_005]))
        area[77_000:77_003] = b"end"  # no msync
    s.note("closed", in_process(lambda: get("file")[77_000:77_003]))
    s.tree("tree")
