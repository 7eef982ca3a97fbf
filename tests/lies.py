# SPDX-License-Identifier: Apache-2.0
"""Lies of an S3 server, for fault_proxy.py: answers that are well-formed and false, and requests that are done late or never."""
import collections
import datetime
import email.utils
import re
import threading
import time
import urllib.parse

import s3_client
from http_wire import NO_LIMIT, Gone, Wire

# lie -> methods it can happen to (None: all)
LIES = {
    "trickle": None,  # the answer comes byte by byte, from its first or from its body's first
    "trickle_request": ("PUT", "POST"),  # the request's body is read byte by byte
    "missing": ("GET", "HEAD"),  # 404 NoSuchKey of what is there
    "denied": None,  # 403 AccessDenied
    "moved": None,  # 301 to another region
    "cut_list": ("GET",),  # a list without its second half, which says that it is whole
    "stale_list": ("GET",),  # a list as it was before: the first that was seen, or an empty one
    "replay": ("GET", "HEAD"),  # an earlier head, or lease, in place of the one that is asked for
    "late": ("PUT", "POST", "DELETE"),  # a reset; the server gets the request late_s later
    "no_delete": ("DELETE", "POST"),  # says that it is deleted
    "late_delete": ("DELETE", "POST"),  # the same; it is deleted late_s later
    "wrong_date": None,  # the answer's Date is up to an hour off
}
XML = '<?xml version="1.0" encoding="UTF-8"?>'
EMPTY_LIST = (XML + "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>").encode()
DELETED = (XML + "<DeleteResult></DeleteResult>").encode()


def is_list(head):
    return head.method == "GET" and "list-type=2" in head.path


def is_deletion(head):
    return head.method == "DELETE" or head.method == "POST" and re.search(r"\?delete\b", head.path)


def fits(lie, head):
    """Does it mean anything for this request?"""
    if lie in ("cut_list", "stale_list"):
        return is_list(head)
    if lie in ("no_delete", "late_delete"):
        return bool(is_deletion(head))
    if lie in ("replay", "missing"):
        return not is_list(head) and (lie == "missing" or number_of(head) is not None)
    return True


def number_of(head):
    """(directory, number) of a numbered object: heads/0000000000000012; None: it is none."""
    found = re.fullmatch(r"(.*/(?:heads|lease)/)([0-9a-f]{16})", head.path)
    return (found[1], int(found[2], 16)) if found else None


class Memory:
    """What the proxy saw pass: the newest names of numbered objects, and the first of each list."""

    def __init__(self):
        self.lock, self.numbers, self.lists = threading.Lock(), collections.defaultdict(set), {}

    def note_request(self, head):
        named = number_of(head)
        if named and head.method == "PUT":
            with self.lock:
                self.numbers[named[0]].add(named[1])

    def earlier(self, head, dice):
        """The path of an object of the same kind with a smaller number; None: none was seen."""
        directory, number = number_of(head)
        with self.lock:
            before = sorted(other for other in self.numbers[directory] if other < number)[-5:]
        return f"{directory}{dice.choice(before):016x}" if before else None

    def first_list(self, head, text):
        """The first answer to this request."""
        with self.lock:
            if len(self.lists) > 1000:
                self.lists.clear()
            return self.lists.setdefault(head.path, text)


def cut(text):
    """A list without its second half."""
    text = text.decode()
    pieces = re.split(r"(<Contents>.*?</Contents>)", text, flags=re.S)
    entries = [piece for piece in pieces if piece.startswith("<Contents>")]
    kept = "".join(entries[: len(entries) // 2])
    return f"{XML}<ListBucketResult><IsTruncated>false</IsTruncated>{encoding(text)}{kept}</ListBucketResult>".encode()


def encoding(text):
    return "<EncodingType>url</EncodingType>" if "<EncodingType>" in text else ""


def raw_answer(status, data, method="GET"):
    raw = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(data)}\r\n"
    raw += f"x-amz-request-id: planned\r\nDate: {email.utils.formatdate(usegmt=True)}\r\n\r\n"
    return raw.encode() + (b"" if method == "HEAD" else data)


def wrong_date(raw, dice):
    """Up to an hour off, at least a minute."""
    offset = dice.choice((-1, 1)) * dice.uniform(60, 3600)
    date = email.utils.format_datetime(datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=offset), usegmt=True)
    return re.sub(rb"(?i)(\r\ndate:)[^\r]*", rb"\g<1> " + date.encode(), raw, count=1)


def signed_again(head, path, host):
    """The same request for another object: the signature covers the path."""
    passed = {name: value for name, value in head.fields.items() if name == "range"}
    signed = s3_client.S3Client(host).signed(head.method, urllib.parse.unquote(path), "", b"", {})
    lines = [f"{head.method} {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in (signed | passed).items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def send_slowly(wire, pieces, pause):
    """Byte by byte, until the client goes."""
    for piece in pieces:
        for at in range(len(piece)):
            wire.send(piece[at : at + 1])
            time.sleep(pause)


class Later(threading.Thread):
    """A request that the server gets later, whatever became of its sender."""

    def __init__(self, connect, request, pause):
        super().__init__(daemon=True)
        self.connect, self.request, self.pause = connect, request, pause
        self.start()

    def run(self):
        time.sleep(self.pause)
        try:
            wire = Wire(self.connect(), NO_LIMIT)
            wire.send(self.request)
            wire.head()
            wire.close()
        except (OSError, Gone):
            pass
