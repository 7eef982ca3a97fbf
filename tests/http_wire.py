# SPDX-License-Identifier: Apache-2.0
"""HTTP as it lies on the wire: heads, and bodies in pieces, for programs that stand between a client and a server."""
import re
import select
import socket
import struct
import threading
import time

PIECE = 256 << 10
IDLE = 300.0  # seconds after which a silent connection is dropped


class Gone(Exception):
    """The connection ended or is to be ended: by a reset, or in order."""

    def __init__(self, reset=False):
        super().__init__()
        self.reset = reset


class Head:
    """The head of a request or an answer: its raw bytes and the little that a proxy must know."""

    def __init__(self, raw):
        self.raw = raw
        lines = raw.decode("latin-1").split("\r\n")
        self.words = lines[0].split(" ", 2)
        self.fields = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if colon:
                self.fields[name.strip().lower()] = value.strip()

    @property
    def method(self):
        return self.words[0]

    @property
    def path(self):
        return self.words[1] if len(self.words) > 1 else ""

    @property
    def status(self):
        return int(self.words[1])

    def length(self, without=0):
        """Bytes of the body; "chunked" or "close" where its end is found otherwise."""
        if "chunked" in self.fields.get("transfer-encoding", "").lower():
            return "chunked"
        value = self.fields.get("content-length")
        return without if value is None else int(value)

    def answer_length(self, method):
        if method == "HEAD" or self.status in (204, 304) or self.status < 200:
            return 0
        return self.length(without="close")

    def keeps_alive(self):
        return "close" not in self.fields.get("connection", "").lower()

    def with_length(self, size):
        return re.sub(rb"(?i)(\r\ncontent-length:)[^\r]*", rb"\g<1> %d" % size, self.raw)


class Wire:
    """A connection that is read in heads and bodies."""

    def __init__(self, sock, limiter):
        self.sock, self.limiter, self.left = sock, limiter, b""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(IDLE)
        self.buffer, self.pause = bytearray(PIECE), 0.0

    def slow_down(self, pause):
        """From now on it is read byte by byte."""
        self.pause, self.buffer = pause, bytearray(1)

    def receive(self):
        """Some bytes, valid until the next call; none at the end."""
        time.sleep(self.pause)
        if self.left:
            size = 1 if self.pause else len(self.left)
            data, self.left = self.left[:size], self.left[size:]
            return memoryview(data)
        try:
            count = self.sock.recv_into(self.buffer)
        except OSError as error:
            raise Gone(True) from error
        return memoryview(self.buffer)[:count]

    def send(self, data):
        self.limiter.take(len(data))
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Gone(True) from error

    def until(self, mark, limit=128 << 10):
        """Bytes up to and with a mark; None if the connection ends before the first byte."""
        got = b""
        while mark not in got:
            data = self.receive()
            if not data:
                if got:
                    raise Gone()
                return None
            got += data
            if len(got) > limit and mark not in got:
                raise Gone(True)
        end = got.index(mark) + len(mark)
        self.left = got[end:]
        return got[:end]

    def head(self):
        raw = self.until(b"\r\n\r\n")
        return None if raw is None else Head(raw)

    def exactly(self, count):
        while count:
            data = self.receive()
            if not data:
                raise Gone()
            if len(data) > count:
                self.left = bytes(data[count:])
                data = data[:count]
            count -= len(data)
            yield data

    def body(self, length):
        """The pieces of a body as they lie on the wire, chunk heads included."""
        if length == "close":
            while data := self.receive():
                yield data
        elif length == "chunked":
            size = None
            while size != 0:
                line = self.until(b"\r\n") or b""
                yield memoryview(line)
                size = int(line.split(b";")[0], 16)
                yield from self.exactly(size + 2)
        else:
            yield from self.exactly(length)

    def content(self, length):
        """A body without its chunk heads, as a whole."""
        raw = b"".join(bytes(piece) for piece in self.body(length))
        if length != "chunked":
            return raw
        data, at = b"", 0
        while True:
            end = raw.index(b"\r\n", at)
            size = int(raw[at:end].split(b";")[0], 16)
            if size == 0:
                return data
            data += raw[end + 2 : end + 2 + size]
            at = end + 2 + size + 2

    def is_stale(self):
        """Has the other side ended, or sent something unasked?"""
        return bool(select.select([self.sock], [], [], 0)[0])

    def close(self, reset=False):
        try:
            if reset:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.sock.close()
        except OSError:
            pass


class Limiter:
    """Bytes a second for all connections together."""

    def __init__(self):
        self.lock, self.rate, self.free = threading.Lock(), None, 0.0

    def take(self, count):
        rate = self.rate
        if not rate:
            return
        with self.lock:
            now = time.monotonic()
            self.free = max(self.free, now - 0.05) + count / rate
            wait = self.free - now
        if wait > 0:
            time.sleep(wait)


NO_LIMIT = Limiter()
