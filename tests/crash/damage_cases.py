# SPDX-License-Identifier: Apache-2.0
"""Damage at every structure of a store or a remote: which files have which parts, and what is done to them. Only bytes: nothing of the code
under test is asked."""
import os
import struct

import rig

SECTOR = 512
KINDS = ("bit", "sector", "swap", "cut", "foreign", "beside")


def pack_parts(data):
    """Header, the first frame and its chunk, a place in the middle, index and trailer."""
    index, index_len = struct.unpack_from("<Q", data, len(data) - 48)[0], struct.unpack_from("<I", data, len(data) - 16)[0]
    frame = struct.unpack_from("<I", data, 68)[0]
    return {"header": (0, 64), "frame": (64, frame), "chunk": (64 + frame, 200), "middle": (index // 2, 100), "index": (index, index_len),
            "trailer": (len(data) - 64, 64)}


def segment_parts(data):
    """Header, header and records of the first, the middle and the last batch, and what was only allocated."""
    if data[:8] != b"CAIRNSEG":
        return {"spare": (0, 4096)}
    at, found = 128, []
    while data[at : at + 4] == b"BTCH":
        length = struct.unpack_from("<Q", data, at + 8)[0]
        found.append((at, length))
        at += 128 + length
    parts = {"header": (0, 128), "slack": (min(at + 4096, len(data) - 4096), 4096)}
    for name, (offset, length) in zip(("last", "first", "middle"), (found[-1:] + found[:1] + found[len(found) // 2 :][:1])):
        parts[f"{name} batch"] = (offset, 128)
        if length:
            parts[f"{name} records"] = (offset + 128, length)
    return parts


def parts_of(path, data):
    directory = os.path.basename(os.path.dirname(path))
    if not data:
        return {}
    if directory == "packs":
        return pack_parts(data)
    if directory == "journal":
        return segment_parts(data)
    return {"begin": (0, min(len(data), 128)), "middle": (len(data) // 2, min(64, len(data) - len(data) // 2)),
            "end": (max(0, len(data) - 64), min(64, len(data)))}


def structures(root, left_out=()):
    """(path below root, part) of every file that is there."""
    found = []
    for top, _, names in os.walk(root):
        for name in names:
            path = os.path.join(top, name)
            below = os.path.relpath(path, root)
            if below.split(os.sep)[0] in left_out or not os.path.isfile(path) or os.path.islink(path):
                continue
            found += [(below, part) for part in parts_of(path, rig.read_file(path))]
    return sorted(found)


def write(path, data):
    rig.write_file(path, data)


def sectors_swapped(data, at, rng):
    """The sector of `at` and another that differs change places; None: there is none."""
    first = at // SECTOR * SECTOR
    others = [i for i in range(0, len(data) - SECTOR + 1, SECTOR) if data[i : i + SECTOR] != data[first : first + SECTOR]]
    if not others or first + SECTOR > len(data):
        return None
    second = rng.choice(others)
    changed = bytearray(data)
    changed[first : first + SECTOR], changed[second : second + SECTOR] = data[second : second + SECTOR], data[first : first + SECTOR]
    return changed


def changed_by(kind, data, offset, length, rng):
    at = offset + rng.randrange(max(1, length))
    if kind == "bit":
        changed = bytearray(data)
        changed[at] ^= 1 << rng.randrange(8)
        return changed
    if kind == "sector":
        begin = at // SECTOR * SECTOR
        end = min(begin + SECTOR, len(data))
        return None if not any(data[begin:end]) else data[:begin] + bytes(end - begin) + data[end:]
    if kind == "swap":
        return sectors_swapped(data, at, rng)
    if kind == "cut":
        return data[:at]
    return b"# a file of somebody else\n" * 300  # foreign


def damage(root, below, part, kind, rng):
    """Does it, in place. False: there is nothing to damage that way."""
    path = os.path.join(root, below)
    if not os.path.exists(path):
        return False
    data = rig.read_file(path)
    if kind == "beside":
        for name in ("notes.txt", "00000000deadbeef", "0000000000000000.old"):
            write(os.path.join(os.path.dirname(path), name), b"somebody's own\n")
        return True
    parts = parts_of(path, data)
    if part not in parts:  # a segment that was only allocated is in use by now
        return False
    offset, length = parts[part]
    changed = changed_by(kind, data, offset, length, rng)
    if changed is None or changed == data:
        return False
    with open(path, "r+b") as file:
        file.truncate(len(changed))
        file.write(changed)
    return True
