#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seed corpora: tests/fuzz/corpus/TARGET/NAME, small inputs that reach deep into each decoder. Files that are there by other
names (inputs that once failed, found-*) stay. Run it after a change of a format, with the golden files of tests/unit/format."""
import glob
import json
import os
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "unit", "format", "golden")
CODED = os.path.join(HERE, "..", "unit", "codec", "golden")
CODED_LENGTHS = {"fx_bf16": 5000, "fx_f32_rows": 5003, "fx_f64": 5001, "fx_i64": 5000, "fx_bytes": 5001,
                 "fx_matrix_f32": 24001, "fx_matrix_bf16": 24001,
                 "dx_bf16": 5000, "dx_bf16_few": 40001, "dx_f32": 5003, "dx_f32_few": 40000, "dx_f64": 5001,
                 "dx_ans_few": 40001, "dx_ans_small": 5000}
TWIN_LENGTHS = {"whole": 5003, "four": 8600, "widened": 16000}
EPOCH = 7 << 40


def golden(name):
    with open(os.path.join(GOLDEN, name), "rb") as file:
        return file.read()


def framed(body):
    return body + struct.pack("<I", zlib.crc32(body))


# --- format -------------------------------------------------------------------------------------------------------------------------


def record(kind, fields, flags=0, seq=EPOCH + 1):
    size = (32 + len(fields) + 7) // 8 * 8
    body = struct.pack("<IHHIQq", size, kind, 0, flags, seq, 1000) + fields
    body = body.ljust(size - 4, b"\0")
    return struct.pack("<I", zlib.crc32(body)) + body


def attrs(size):
    return struct.pack("<IIIIQqqqq", 0o100644, 0, 0, 0, size, 1, 2, 3, 4)


def named(name):
    return struct.pack("<H", len(name)) + name


def chunk_extent(offset, length, name):
    return struct.pack("<QQIB3x", offset, length, 0, 1) + name.ljust(24, b".")


def format_seeds():
    yield "superblock", "plain", golden("superblock.bin")[:120]
    yield "superblock", "history", golden("superblock-history.bin")[:120]
    for name in ("head", "head-history", "snapshot", "lease", "prefix-info"):
        yield "head", name, golden(name + ".bin")
    records = {os.path.basename(path)[7:-4]: golden(os.path.basename(path)) for path in glob.glob(GOLDEN + "/record-*.bin")}
    for name, data in records.items():
        yield "record", name, data
    yield "record", "several", records["link"] + records["rename"] + records["reap"]
    pack = golden("pack.bin")
    index_offset, index_len = struct.unpack("<Q", pack[-48:-40])[0], struct.unpack("<I", pack[-16:-12])[0]
    yield "pack", "plain", pack[:64] + pack[-64:] + pack[index_offset : index_offset + index_len]
    yield "pack", "frame", pack[:64] + pack[-64:] + pack[64:144]
    yield "segment", "plain", golden("segment.bin").rstrip(b"\0") + bytes(16)


def block(at, rows, header_crc):
    body = struct.pack("<IIQ", len(b"".join(rows)), len(rows), at) + b"".join(rows)
    return body + struct.pack("<I", zlib.crc32(body, header_crc))


def run_row(shared, rest, value):
    return struct.pack("<HHI", shared, len(rest), 0xFFFFFFFF if value is None else len(value)) + rest + (value or b"")


def run_file(*blocks):
    header = framed((b"CAIRNRUN" + struct.pack("<IIQ16sQQ", 1, 0, 9, b"h" * 16, 0, EPOCH)).ljust(124, b"\0"))
    crc = zlib.crc32(header[:124])
    data = header
    for rows in blocks:
        data += block(len(data), rows, crc)
    count = sum(len(rows) for rows in blocks)
    return data + framed(b"REND" + struct.pack("<IQQQI24x", 1, 9, count, len(data) + 64, crc))


def run_seeds():
    yield "run", "empty", run_file()
    rows = [run_row(0, b"Iaaaaaaaa", b"one"), run_row(8, b"b", None), run_row(1, b"b", b"")]
    yield "run", "one-block", run_file(rows)
    yield "run", "two-blocks", run_file(rows, [run_row(0, b"Jx", b"four")])
    yield "run_merge", "two", b"\1" + b"\2" + b"\1ab\5" + b"\0a\6" + b"\2" + b"\1ab\4" + b"\0c\7"
    yield "run_merge", "removed", b"\0" + b"\1" + b"\0a\1" + b"\1" + b"\0a\4" + b"\0" + b"\1" + b"\0b\3"


# --- codec --------------------------------------------------------------------------------------------------------------------------


FACTORS, ADDEND = (0x9E37, 0x79B1, 0x85EB, 0xCA6B), 0x27D5  # codec/twin_kernels.h


def with_landmarks(count, every):
    """fp32 numbers; at each so many ones their roundings add up to a landmark."""
    numbers = [0x3C000000 + (i * 2654435761 & 0x3FFFFFF) for i in range(count)]
    for at in range(every, count - 4, every):
        rounded = [(x + 0x7FFF + (x >> 16 & 1)) >> 16 for x in numbers[at : at + 3]]
        rest = ADDEND + sum(x * factor for x, factor in zip(rounded, FACTORS))
        numbers[at + 3] = (-rest * pow(FACTORS[3], -1, 1 << 16) % (1 << 16)) << 16
    return struct.pack(f"<{count}I", *numbers)


def codec_seeds():
    text = b"checkpoints are text now and then, "
    yield "chunk", "raw", b"\0" + len(text).to_bytes(3, "little") + text
    yield "chunk", "lz4", b"\1" + (35).to_bytes(3, "little") + bytes([0xF0, 35 - 15]) + text
    yield "chunk", "lz4-match", b"\1" + (100).to_bytes(3, "little") + b"\x1fa\1\0\x47\x50aaaaa"
    yield "chunk", "unknown", b"\7" + b"\1\0\0" + b"x"
    for file_name, raw_len in CODED_LENGTHS.items():
        with open(f"{CODED}/{file_name}.bin", "rb") as file:
            coded = file.read()
        encoding, name = file_name.split("_", 1)
        if encoding == "fx":
            yield "chunk", "fx-" + name, b"\2" + raw_len.to_bytes(3, "little") + coded
        yield encoding, name, (raw_len - 1).to_bytes(3, "little") + b"\0" + coded
    for name, raw_len in TWIN_LENGTHS.items():
        with open(f"{CODED}/twin_{name}.bin", "rb") as file:
            yield "twin", name, (raw_len - 1).to_bytes(3, "little") + b"\0" + file.read()
    yield "twin_find", "one", b"\0\0\0\0" + with_landmarks(1200, 600)
    yield "twin_find", "changed", b"\4\0\5\7" + with_landmarks(3000, 500)
    yield "twin_find", "four-phases", b"\x1a\1\0\x40" + b"\0\0" + with_landmarks(2500, 1100)
    header = {"a": {"dtype": "F32", "shape": [2048], "data_offsets": [0, 8192]}, "b": {"data_offsets": [8192, 300000]}}
    text = json.dumps(header, separators=(",", ":")).encode()
    whole = struct.pack("<Q", len(text)) + text
    yield "tensors", "two", whole
    yield "tensors", "spaces", whole.replace(b":[", b" : [ ").replace(b",", b" , ")
    literal = b"".join(bytes([len(whole[i : i + 31]) << 3]) + whole[i : i + 31] for i in range(0, len(whole), 31))
    yield "zip", "plain", struct.pack("<H", 63) + b"".join(struct.pack("<HBH", 1000, i, 6) + b"data/%d" % i for i in range(8))
    yield "zip", "big", struct.pack("<H", 63) + b"".join(struct.pack("<HBH", 0xFFFF, 17, 2) + b"d%d" % i for i in range(4))
    yield "chunker", "safetensors", b"\3\7" + literal + b"\x0b\0\x12" * 9
    entry, tensor, descriptor = b"\4\x20\x10\0", b"\x13\x80\0", b"\5\2\0"
    yield "chunker", "zip", b"\2\1" + (entry + tensor + descriptor) * 3
    yield "chunker", "writes", b"\1\xff" + b"\x0b\0\x08\7" * 4 + b"\x0b\1\x30\7" + b"\x0b\0\x40"
    yield "chunker", "plain", b"\0\0" + b"\x0b\0\x80"


# --- stage, view --------------------------------------------------------------------------------------------------------------------


def bases_seeds():
    """Of each chunk: kind, base, how (bases.c); then what is damaged."""
    chain = b"\x09\0\0\0" + b"".join(bytes([1, number, 1]) for number in range(9))
    twins = b"\x08" + bytes([0, 0, 0, 0, 1, 0, 2, 0, 1, 2, 0, 0x31, 1, 1, 1, 2, 1, 0x13, 65, 2, 2, 2, 4, 0x34, 1, 5, 2])
    for name, chunks in (("chain", chain), ("twins", twins), ("local", bytes([twins[0], 0x80]) + twins[2:])):
        yield "bases", name, chunks
        yield "bases", name + "-bit", chunks + bytes([10, 5, 77, 1])
        yield "bases", name + "-cut", chunks + bytes([9, 4, 40, 0])
        yield "bases", name + "-cycle", chunks + bytes([4, 0x10, 3, 0, 12, 0x10, 1, 0])
        yield "bases", name + "-deep", chunks + bytes([17, 2, 11, 0, 13, 2, 0, 0])
        yield "bases", name + "-lost", chunks + bytes([3, 0, 8, 0x20, 1, 0])
        yield "bases", name + "-moves", chunks + bytes([9, 5, 1, 0, 11, 1, 7, 1])
        yield "bases", name + "-length", chunks + bytes([16, 0x80, 0, 1, 12, 0x44, 9, 9])
        yield "bases", name + "-errors", chunks + bytes([3, 3, 7, 15, 11, 10])


def stage_input(log, *slabs):
    return struct.pack("<HB", len(log), 1) + log + b"".join(slabs)


def slab(*writes):
    return bytes([1 | 2 | len(writes) << 5]) + b"".join(struct.pack("<QQQQIIq", *write) for write in writes)


def stage_seeds():
    q = lambda *numbers: struct.pack("<%dQ" % len(numbers), *numbers)
    layer = lambda ino, size, seq, flags=0: record(34, q(ino, 3, 500) + attrs(size), flags, seq)
    # RANGE: ino, version, offset, length, slab, offset in the slab
    in_slab = lambda ino, seq: record(35, q(ino, 3, 100, 300) + struct.pack("<II", 0, 64), 0, seq)
    hole = record(35, q(1, 3, 700, 100) + struct.pack("<II", 0xFFFFFFFF, 0), 0, EPOCH + 4)
    piece = record(36, q(2, 3) + struct.pack("<I", 1) + chunk_extent(0, 4096, b"\x05"), 0, EPOCH + 5)
    cut = record(33, q(2, 3, 1000, 2000) + attrs(4096), 0, EPOCH + 6)
    seal = record(1, q(2, 3, 0, 0, 500) + attrs(4096) + named(b"") + struct.pack("<II", 0, 0), 0, EPOCH + 7)
    write = (EPOCH + 3, 1, 3, 5000, 200, 64, 1000)
    yield "stage", "empty", stage_input(b"")
    yield "stage", "writes", stage_input(b"", slab(write, (EPOCH + 8, 2, 4, 0, 100, 400, 1001)))
    yield "stage", "layers", stage_input(layer(1, 900, EPOCH + 2) + in_slab(1, EPOCH + 2) + hole, slab(write))
    yield "stage", "sealed", stage_input(piece + cut + seal, slab((EPOCH + 9, 2, 4, 10, 50, 64, 5)))
    marker = record(34, q(0, 0, 0) + attrs(0), 0, EPOCH + 2)
    yield "stage", "compacted", stage_input(marker + layer(1, 900, EPOCH + 3, 16) + in_slab(1, EPOCH + 3), slab(write))
    # magic, version, slabs, store, boot id, length of half a log, epoch, checksum; then what changes while in use
    header = lambda slabs, half: struct.pack("<QII16s40sQQII", 0, 0, slabs, b"", b"", half, 1, 0, 0)
    in_use = lambda active, *tails: struct.pack("<QQQIIQQ", 1, 2, EPOCH, active, 0, *tails)
    half = (8 << 20) + (16 << 20) // 160 // 4096 * 4096 + 4096
    yield "stage_header", "sound", b"\1"
    yield "stage_header", "in-use", b"\1" + header(16, half) + in_use(1, 64, 1 << 40)
    yield "stage_header", "no-slabs", b"\1" + header(0, half) + in_use(0, 0, 0)
    yield "stage_header", "long-log", b"\1" + header(16, 1 << 63) + in_use(0, 0, 0)
    yield "stage_header", "cut-control", b"\x0b"
    yield "stage_header", "cut-slabs", b"\x0d"
    yield "stage_header", "foreign", b"\0" + header(16, half)


def row(key, value):
    return struct.pack("<H", len(key)) + key + value


def rows_seeds():
    number = lambda kind, *numbers: kind + struct.pack(">%dQ" % len(numbers), *numbers)
    name = b"chunk".ljust(24, b".")
    yield "rows", "inode", row(number(b"I", 5), b"\1" + struct.pack("<IIIIQqqqqQQQQQQQ", 0o100644, 0, 0, 0, 10, 1, 2, 3, 4, 1, 2, 1, 10, 1, 0, 0))
    yield "rows", "name", row(number(b"D", 1) + b"model.pt", b"\1" + struct.pack("<QQI", 5, 99, 0o100000))
    yield "rows", "cookie", row(number(b"C", 1, 99), b"\1" + struct.pack("<QI", 5, 0o100000) + b"model.pt")
    yield "rows", "page", row(number(b"E", 5, 0, 2), b"\1" + struct.pack("<I", 2) + struct.pack("<IIIB", 0, 4096, 0, 1) + name
        + struct.pack("<IIIBQQQ", 4096, 100, 0, 2, 3, 4096, 0))
    yield "rows", "blob", row(number(b"N", 5, 3, 4096), b"\1inline")
    yield "rows", "xattr", row(number(b"X", 5) + b"user.a", b"\1value")
    yield "rows", "link", row(number(b"L", 5), b"\1target")
    yield "rows", "orphan", row(number(b"O", 5), b"\1")
    yield "rows", "chunk", row(b"H" + name, b"\1" + struct.pack("<QQQIIBBB", 2, 9, 64, 1000, 4096, 1, 0, 0))
    yield "rows", "chunk-refs", row(b"H" + name, b"\1" + struct.pack("<QQQIIBBB", 2, 9, 64, 1000, 4096, 5, 1, 1) + name + struct.pack("<II", 0, 10))
    yield "rows", "pack", row(number(b"Q", 9), b"\1" + struct.pack("<QIq", 1 << 20, 4, 0))
    yield "rows", "own-state", row(b"M", b"\1" + struct.pack("<Q32sQQQQQQQ", 99, b"chain", 5, 2, 10, 3, 2000, 1, 1 << 20))
    yield "rows", "own-pack", row(number(b"P", 9), b"\1" + struct.pack("<QIQIQ", 1 << 20, 4, 3000, 3, 4))
    yield "rows", "own-far-pack", row(number(b"Q", 9), b"\1" + struct.pack("<QIQIQQqBQ", 1 << 20, 4, 3000, 3, 4, 7, 1000, 1, 0))
    yield "rows", "own-remote", row(b"W", b"\1" + struct.pack("<BBQQQQQQQ", 1, 0, 7, 90, 2, 1 << 21, 3, 3000, 12))
    yield "rows", "own-place", row(b"R" + name, b"\1" + struct.pack("<QQQIIBBB", 0, 9, 64, 1000, 4096, 1, 0, 0))
    yield "rows", "own-wanted", row(b"U" + name, b"\1" + struct.pack("<Q", 1000))
    yield "rows", "own-touched", row(b"T" + number(b"I", 5), b"\1" + struct.pack("<QQ", 12, 90))


# --- tier ---------------------------------------------------------------------------------------------------------------------------


def listed(keys, rest=b""):
    body = b"".join(b"<Contents><Key>%s</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><Size>10</Size></Contents>" % key for key in keys)
    return b'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">' + rest + body + b"</ListBucketResult>"


def tier_seeds():
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>t1</NextContinuationToken><EncodingType>url</EncodingType>"
    yield "s3_answer", "list", b"\0" + listed([b"runs/a/packs/1", b"runs/a/packs/2"])
    yield "s3_answer", "list-pages", b"\0" + listed([b"runs%2Fa/packs/a%20b"], more) + b"\0" + listed([b"runs/a/packs/c"])
    yield "s3_answer", "list-same", b"\0" + listed([b"runs/a/packs/1", b"runs/a/packs/1"])
    yield "s3_answer", "list-backwards", b"\0" + listed([b"runs/a/packs/2", b"runs/a/packs/1"])
    yield "s3_answer", "deleted", b"\1<DeleteResult></DeleteResult>"
    yield "s3_answer", "not-deleted", (b"\1<DeleteResult><Error><Key>runs/a/packs/1</Key><Code>InternalError</Code></Error>"
        b"<Error><Key>runs/a/packs/2</Key><Code>NoSuchKey</Code></Error></DeleteResult>")
    yield "s3_answer", "error", b"\2\xf7\1<Error><Code>SlowDown</Code><Message>Reduce &#10; your rate</Message><Region>eu-1</Region></Error>"
    yield "s3_answer", "error-response", b"\2\x90\1<ErrorResponse><Error><Code>ExpiredToken</Code></Error></ErrorResponse>"
    yield "s3_answer", "sts", (b"\3<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>sk"
        b"</SecretAccessKey><SessionToken>st</SessionToken><Expiration>2031-05-29T00:21:43Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>")
    yield "http_header", "get", (b"HTTP/1.1 206 Partial Content\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 100\r\n"
        b"Content-Range: bytes 0-99/1000\r\nETag: \"abc\"\r\nContent-Type: binary/octet-stream\r\n\r\n")
    yield "http_header", "busy", (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 Slow Down\r\nRetry-After: 120\r\nx-amz-request-id: tx1\r\n"
        b"x-amz-bucket-region: eu-central-1\r\nLast-Modified: Sunday, 06-Nov-94 08:49:37 GMT\r\n\r\n")
    yield "http_header", "range", b"HTTP/1.1 416 no\r\nContent-Range: bytes */5\r\nRetry-After: Sun, 06 Nov 2094 08:49:37 GMT\r\n"
    yield "credentials", "container", b'{"Code":"Success","AccessKeyId":"AK","SecretAccessKey":"sk","Token":"t","Expiration":"2031-05-29T00:21:43Z"}'
    yield "credentials", "process", b'{"Version":1,"AccessKeyId":"AK","SecretAccessKey":"sk"}'
    yield "credentials", "refused", b'{"Code":"Failed","Message":"no\\nsuch role"}'
    yield "credentials", "time", b"2019-05-29T00:21:43.5+01:00"
    yield "profiles", "both", (b"[default]\nregion = eu-1 # here\ns3 =\n  endpoint_url = http://x\n[profile p]\nrole_arn=arn\nservices = other\n"
        b"[services other]\ns3 =\n  endpoint_url = http://y\n\0[default]\naws_access_key_id=AK\naws_secret_access_key = sk\n[p]\nregion=us\n")
    yield "profiles", "empty-value", b"[default]\nregion =\ns3 =\n  endpoint_url =\n"
    yield "profiles", "quoted", b"\xef\xbb\xbf[profile \"p\"]\r\nregion = a\r\n; remark\r\n  more = x\r\n"


# --- daemon, cli --------------------------------------------------------------------------------------------------------------------


def daemon_seeds():
    yield "options", "sizes", b"stage=64M,nvme=1.5T,writeback_delay=250ms,fsync=stage,threads=8,ro,allow-other"
    yield "options", "remote", b"remote=s3://bucket/a\\,b,endpoint_url=http://h:1,lease=1m,checksum=crc32,connections=4"
    yield "options", "ignored", b"nofail,x-systemd.automount,_netdev,comment=a b,cache_size=0"
    for name, text in {"size": b"12.5MiB", "duration": b"1.5h", "s3": b"s3://bucket/run/7:/a:b", "metrics": b"127.0.0.1:9464",
        "metrics-v6": b"[::1]:9464", "dir": b"dir:/nfs//x/:step"}.items():
        yield "options", name, text
    yield "mounts", "some", (b"36 35 0:51 / /mnt/a\\040b rw,nosuid shared:1 - fuse.cairnfs /store\\012x rw\n"
        b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 35 0:52 / /m rw - fuse.cairnfs /s rw,user_id=0\n")
    requests = [{"verb": "status"}, {"verb": "need", "ino": 1, "level": "nvme"}, {"verb": "need", "ino": "281474976710657", "level": "remote"},
        {"verb": "horizon"}, {"verb": "urgent", "on": True, "level": "remote"}, {"verb": "drain"}, {"verb": "ping"},
        {"verb": "drain", "level": "remote", "at_end": False}, {"verb": "warm", "ino": 1, "evict": True}, {"verb": "warm", "ino": 1},
        {"verb": "warm_status", "job": 1, "cancel": True}, {"verb": "job_start", "kind": "gc", "remote": True, "dry_run": True},
        {"verb": "job_start", "kind": "scrub", "local": True, "rate": 1000}, {"verb": "job", "from": 0}, {"verb": "job_cancel"},
        {"verb": "look", "ino": 1}, {"verb": "survey", "todo": ["d1:0", "f1:0", "d2:0"]},
        {"verb": "users", "at": 0, "chunks": ["0123456789abcdef" * 2, "fedcba9876543210" * 2]}]
    for number, request in enumerate(requests):
        yield "request", f"{number:02}-{request['verb']}", json.dumps(request).encode() + b"\n"
    yield "request", "several", b'{"verb":"ping"}\n{"verb":"horizon"}\r\n[]\n{"verb":\n'
    for name, error in {"well": b"", "failed": b"No space left on device: /m/a\xc3\xa4\x1b"}.items():
        yield "lane", name, b"1 pending=1073741824 saves=2 blocked_ns=18446744073709551615 published=7 failed=0 error=" + error
    yield "lane", "steps", b"2 step_ns=510000000 cost_ns=18446744073709551615"
    status = {"version": "0", "store": "/s", "store_id": "ab", "mountpoint": "/m", "pid": 1, "uptime_s": 70,
        "stage": {"dir": "/dev/shm", "total_bytes": 1024, "dirty_bytes": 1, "drafts": 1, "draft_bytes": "12345678901234567", "waiting_writers": 0},
        "nvme": {"path": "/s", "used_bytes": 1, "cap_bytes": 2, "files": 1, "chunks": 1, "behind_bytes": 5, "seconds_behind": 4000.5,
            "horizon_seq": "18446744073709551615", "errors": 1, "last_error": "bad", "last_error_s_ago": 3, "written_bytes_total": 1},
        "remote": {"state": "unreachable", "name": "dir:/r", "error": "gone", "unreachable_s": 90061, "behind_bytes": 1},
        "memory": {"formula": "1 + 1", "resident_bytes": 1}, "mount": {"write": "direct", "mmap_shared": True, "threads": 4},
        "damage": [{"path": "/a", "what": "bad"}, {}, 7],
        "lanes": {"pending_bytes": 5, "forgotten": 1, "blocked_seconds": 1.5, "clients": [{"pid": 7, "program": "p\n", "pending_bytes": 5,
            "pending_saves": 1, "published": 2, "failed": 1, "blocked_seconds": 1.5, "last_error": "bad\u001b", "seen_s_ago": 9}, {}, 7]}}
    yield "reply", "status", b"\0" + json.dumps(status).encode() + b"\n"
    yield "reply", "status-json", b"\1" + json.dumps(status).encode() + b"\n"
    yield "reply", "error", b"\0" + b'{"error":"no","errno":1}\n'
    yield "reply", "no-json", b"\0hello\n"
    later = {**status, "mount": {"written_bytes_total": 1 << 40}, "remote": {"state": "none"}}
    rows = [json.dumps(reply).encode() + b"\n" for reply in (status, later, {})]
    yield "reply", "stats", b"\2" + b"".join(rows)
    yield "reply", "stats-json", b"\3" + b"".join(rows)
    yield "reply", "metrics", b"\4" + b'{"text":"cairn_up 1\\n"}\n'
    found = {"ino": "5", "type": "file", "links": 1, "size_bytes": 1000, "level": "nvme", "version": 3, "newer_version_staged": True, "rest": "f5"}
    last = {"done": 1, "found": [], "chunks": [("0123456789abcdef" * 2) + ":1:1:1000:1000:500:3:2:90:4:" + "fedcba9876543210" * 2]}
    for at, name in ((5, "info"), (6, "info-json"), (7, "du")):
        yield "reply", name, bytes([at]) + b"".join(json.dumps(reply).encode() + b"\n" for reply in (found, last))
    needs = [{"seq": "99999999999999999999", "bytes": 7}, {"seq": 5, "bytes": 7}]
    polls = [{"nvme": 1, "remote": 1, "missing_bytes": 7, "remote_missing_bytes": 9, "error": "no room"}, {},
        {"nvme": 5, "remote": 2, "remote_state": "fenced", "remote_error": "taken"}]
    for at, name in ((8, "wait"), (9, "wait-remote"), (10, "umount"), (11, "umount-remote")):
        yield "reply", name, bytes([at]) + b"".join(json.dumps(reply).encode() + b"\n" for reply in (needs[1], *polls))
        yield "reply", name + "-too-much", bytes([at]) + b"".join(json.dumps(reply).encode() + b"\n" for reply in (needs[0], *polls))
    job = {"number": 3, "running": True, "lines": ["a\x1b[1m", 7], "bytes": 5, "bytes_total": 9, "found": 1, "healed": "1"}
    ends = {**job, "running": False, "failed": "no room", "cancelled": True}
    for at, name in ((12, "scrub"), (13, "gc")):
        yield "reply", name, bytes([at]) + b"".join(json.dumps(reply).encode() + b"\n" for reply in ({"number": 3}, job, job, ends))
        yield "reply", name + "-other", bytes([at]) + b'{"number":3}\n{"number":4,"running":true}\n'
    warm = {"total_bytes": 9, "done_bytes": 3}
    left = {**warm, "ended": True, "failed": "no", "failed_bytes": 1, "not_kept_bytes": 1, "unpublished_bytes": "2", "pinned_bytes": 3, "busy_bytes": 4}
    for at, name in ((14, "warmup"), (15, "evict")):
        yield "reply", name, bytes([at]) + b"".join(json.dumps(reply).encode() + b"\n" for reply in ({"job": 1}, warm, warm, left))
    for name, text in (("empty", b""), ("plain", b"/dev/shm\n"), ("reader", b"/dev/shm\nreader\n"), ("no-end", b"/dev/shm"), ("pid", b"12345\n"),
                       ("zero", b"/dev/shm\0x\nreader\n"), ("long", b"9" * 4096), ("too-long", b"/" * 4097)):
        yield "store_files", name, text
    line = b"2026-01-02 03:04:05.678 cairn warning: cannot write to /a: no room\n"
    yield "log", "lines", b"\3" + line + line.replace(b"warning", b"debug") + b"fuse: a line of a library\n2026-01-02 cairn error: no\n"
    yield "log", "json", b"\x82" + line.replace(b"/a", b"/\x1b[1m\xff\"") + b"no end"
    yield "log", "long", b"\3" + line[:-1] + b"x" * 4100 + b"\n" + line
    yield "log", "zero", b"\3" + line + b"a\0b\n\0\n" + line + b"\0c"
    chunk = "0123456789abcdef" * 2
    base = "fedcba9876543210" * 2
    portion = {"done": 1, "rest": "d1:64", "inline_bytes": "100", "inline_remote_bytes": "100", "found": ["f5:1000:1:0", "f6:10:2:10", "f6:10:2:10", "d7:0:2:0", "o8:0:1:0"],
        "chunks": [chunk + ":1:1:4096:4096:1000:3:1:900:4:" + base, chunk + ":1:1:4096:4096:1000:2:3:900:3" + (":" + base) * 4, chunk + ":3:1:100:4096:1000:1:2", chunk + ":3:2:100:4096:1000:1:2"]}
    yield "survey", "portion", b"\1" + json.dumps(portion).encode()
    linked = {"done": 1, "inline_bytes": 100, "inline_remote_bytes": 50, "found": ["f6:10:2:0", "f6:10:2:0", "f9:10:9:0"], "chunks": portion["chunks"]}
    yield "survey", "linked", b"\0" + json.dumps(linked).encode()
    yield "survey", "nothing", b"\0" + b'{"done":1,"found":[],"chunks":[]}'
    yield "survey", "too-much", b"\0" + b'{"done":2}'
    yield "survey", "long-name", b'{"done":1,"chunks":["%s:1:1:4096:4096:1000:3:1:1:1"]}' % (chunk.encode() * 4)
    yield "survey", "many-bases", b'{"done":1,"chunks":["%s:1:1:4096:4096:1000:3:1:1:4%s"]}' % (chunk.encode(), b":" + base.encode() * 5)
    yield "survey", "wrong-rows", b"\7" + b'{"done":"1","found":["f5:1"],"chunks":["ab:1:1:1:1:1:1"]}'


def main():
    for seeds in (format_seeds, run_seeds, codec_seeds, bases_seeds, stage_seeds, rows_seeds, tier_seeds, daemon_seeds):
        for target, name, data in seeds():
            directory = os.path.join(HERE, "corpus", target)
            os.makedirs(directory, exist_ok=True)
            with open(os.path.join(directory, name), "wb") as file:
                file.write(data)


if __name__ == "__main__":
    main()
