# SPDX-License-Identifier: Apache-2.0
"""Where the records of a torch archive lie, by its directory alone.

A record's first byte is behind its local header, whose length the directory does not tell. torch pads the header so that the record is
aligned, so its length is known where the record, its descriptor and the next header follow each other without a gap. The header itself
is read together with the record, and compared then (check_header). Of other archives the headers are read first.

torch reads the same directory by code of its own, and refuses what is damaged there. What this module does not understand goes to torch.
"""
import struct

from ._reading import NotCovered

END = struct.Struct("<4s4H2IH")
END64_PLACE = struct.Struct("<4sIQI")
END64 = struct.Struct("<4sQ2H2I4Q")
ENTRY = struct.Struct("<4s6H3I5H2I")
LOCAL = struct.Struct("<4s5H3I2H")
FULL = 0xFFFFFFFF  # the value is in the extra field
DESCRIPTORS = (16, 24)
DIRECTORY = 0x10  # torch would hand out memory that it has not filled
NOT_READ = 0x61  # encrypted, or a patch: torch refuses them
GAP_MAX = 64  # descriptors and padding between two records that are read as one range
TAIL = 4096


class Record:
    __slots__ = ("name", "header", "data", "size", "is_known")

    def __init__(self, name, header, size):
        self.name, self.header, self.size = name, header, size  # name: bytes, with the archive's
        self.data = None  # offset of the first byte
        self.is_known = False  # the local header was read, and is right

    @classmethod
    def known(cls, data):
        """Of a file without local headers."""
        record = cls(b"", data, 0)
        record.data, record.is_known = data, True
        return record

    def end(self):
        return self.data + self.size


class Archive:
    """records: {name without the archive's: Record}, of those below data/, in the order of the file."""

    def __init__(self, reading, alignment):
        offset, length = find_directory(reading)
        entries = sorted(read_entries(reading.read(offset, length), length))
        if not entries:
            raise NotCovered("an archive without records")
        prefix = entries[0][1].split(b"/", 1)[0] + b"/data/"
        check_order(entries, offset)
        self.records = {}
        following = [entry[0] for entry in entries[1:]] + [offset]
        for (header, name, size, is_plain), following_header in zip(entries, following):
            if not name.startswith(prefix):
                continue
            if not is_plain:
                raise NotCovered("a compressed record")
            record = Record(name, header, size)
            place(reading, record, following_header, alignment)
            key = name[len(prefix) - 5 :].decode()
            if key in self.records:
                raise NotCovered("two records of one name")
            self.records[key] = record


def find_directory(reading):
    """(offset, length) of the directory; NotCovered: torch is to look."""
    start = max(0, reading.size - TAIL)
    tail = reading.read(start, TAIL)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at != END.size:
        raise NotCovered("an archive whose end is not found")
    _, disk, first_disk, here, count, length, offset, _ = END.unpack_from(tail, at)
    end = start + at
    if FULL in (length, offset) or 0xFFFF in (here, count):
        if at < END64_PLACE.size:
            raise NotCovered("an archive whose end is cut")
        mark, _, end, _ = END64_PLACE.unpack_from(tail, at - END64_PLACE.size)
        wide = reading.read(end, END64.size) if mark == b"PK\6\7" and end < reading.size else b""
        if len(wide) < END64.size or wide[:4] != b"PK\6\6":
            raise NotCovered("an archive whose end is damaged")
        length, offset = END64.unpack(wide)[8:]
    if disk or first_disk or offset + length > end:
        raise NotCovered("an archive whose directory is not before its end")
    return offset, length


def read_entries(directory, length):
    """(offset of the local header, name, size, is stored plainly) of each entry."""
    if len(directory) != length:
        raise NotCovered("an archive whose directory is cut")
    at = 0
    while at < length:
        if length - at < ENTRY.size:
            raise NotCovered("an archive whose directory is damaged")
        fields = ENTRY.unpack_from(directory, at)
        mark, _, _, flags, method, _, _, _, stored, size, names, extras, comments, _, _, attributes, header = fields
        end = at + ENTRY.size + names + extras + comments
        if mark != b"PK\1\2" or end > length:
            raise NotCovered("an archive whose directory is damaged")
        name = directory[at + ENTRY.size : at + ENTRY.size + names]
        if FULL in (size, stored, header):
            extra = directory[at + ENTRY.size + names : at + ENTRY.size + names + extras]
            size, stored, header = wide_values(extra, size, stored, header)
        if attributes & DIRECTORY:
            raise ValueError(f"the record {name.decode(errors='replace')} is marked as a directory")
        is_plain = method == 0 and not flags & NOT_READ
        if is_plain and size != stored:
            raise ValueError(f"the record {name.decode(errors='replace')} has {size} bytes, and {stored} are stored")
        yield header, name, size, is_plain
        at = end


def wide_values(extra, *values):
    """Those that are FULL are in the field 1, one behind the other."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{length // 8}Q", extra[at + 4 : at + 4 + length]))
            try:
                return [next(wide) if value == FULL else value for value in values]
            except StopIteration:
                break
        at += 4 + length
    raise NotCovered("an archive whose directory is damaged")


def check_order(entries, directory):
    """Each record lies before the next one, and before the directory."""
    following = [entry[0] for entry in entries[1:]] + [directory]
    for (header, name, size, is_plain), end in zip(entries, following):
        if header + LOCAL.size + len(name) + (size if is_plain else 0) > end:
            where = "overlaps the next one" if end != directory else "is not before the directory"
            raise ValueError(f"the record {name.decode(errors='replace')} of {size} bytes at {header} {where}, at {end}")


def place(reading, record, following, alignment):
    start = record.header + LOCAL.size + len(record.name) + 4
    if record.size >= FULL or record.header >= FULL:
        start += 4 + (16 if record.size >= FULL else 0) + (8 if record.header >= FULL else 0)
    record.data = -(-start // alignment) * alignment
    if following - record.end() in DESCRIPTORS or record.size == 0 and following == record.data:
        return
    head = reading.read(record.header, LOCAL.size + len(record.name))
    if len(head) < LOCAL.size:
        raise NotCovered("an archive whose local headers are damaged")
    record.data = record.header + LOCAL.size + len(record.name) + LOCAL.unpack_from(head)[-1]
    check_header(record, head)
    record.is_known = True
    if record.end() > following:
        raise ValueError(f"the record {record.name.decode(errors='replace')} of {record.size} bytes ends behind {following}")


def check_header(record, head):
    """`head` is what the file has from the record's header on. RuntimeError, as torch raises: it is another's, or damaged."""
    mark, _, flags, method, *_, names, extras = LOCAL.unpack_from(head)
    name = head[LOCAL.size : LOCAL.size + names]
    data = record.header + LOCAL.size + names + extras
    if mark != b"PK\3\4" or method or flags & 1 or name != record.name or data != record.data:
        raise RuntimeError(f"the header of the record {record.name.decode(errors='replace')}, at {record.header} in the file, is damaged")


class Gaps:
    """The ranges between records that local headers lie in: read with the records into one piece of memory."""

    def __init__(self, records):
        self.records = []  # whose header is in the range of the same number
        self.ranges = []  # (offset in the file, length, offset in memory)
        end, size = -1, 0
        for record in sorted(records, key=lambda record: record.header):
            if not record.is_known:
                start = end if 0 <= record.header - end <= GAP_MAX and end >= 0 else record.header
                self.records.append(record)
                self.ranges.append((start, record.data - start, size))
                size += record.data - start
            end = record.end()
        self.memory = bytearray(size)

    def check(self, number):
        record, (_, length, at) = self.records[number], self.ranges[number]
        check_header(record, self.memory[at + length - (record.data - record.header) : at + length])

    def check_all(self):
        for number in range(len(self.records)):
            self.check(number)
