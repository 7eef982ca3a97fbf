#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A proxy between the daemon and an S3 server that breaks things as planned.

It reads heads and streams bodies; the Host header goes through unchanged, because the signature covers it. Each request
gets at most one fault: by a script (the n-th request that matches) or by chance, seeded by the request's number.

    proxy = FaultProxy("127.0.0.1:7480", seed=1).start()
    proxy.set(faults={"500": 0.05, "corrupt": 0.05})     # by chance, until told otherwise
    proxy.set(script=[{"method": "PUT", "path": "/heads/", "nth": 1, "fault": "lost_answer"}])
    proxy.set(latency=0.05, rate=10_000_000, down=True)
    proxy.stats(); proxy.stop()

The proxy is a process of its own; commands are JSON lines on its stdin, answers on its stdout; at the end of stdin it ends.
"""
import argparse
import collections
import itertools
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time

import lies
from http_wire import NO_LIMIT, Gone, Limiter, Wire

# fault -> methods it can happen to (None: all)
FAULTS = {
    "500": None,
    "503": None,
    "503_retry_after": None,
    "reset_before": None,  # reset when the head has come
    "reset_request": None,  # reset in the middle of the request's body
    "reset_answer": None,  # reset in the middle of the answer
    "stall": None,  # no byte for stall_s, in the middle of the answer
    "stall_request": ("PUT", "POST"),  # the request's body is not read for stall_s
    "truncate": ("GET",),  # the body ends before its Content-Length
    "short": ("GET",),  # half the body, with a Content-Length that says so
    "corrupt": ("GET",),  # one bit of the body
    "duplicate": None,  # forwarded twice; the second answer comes back
    "lost_answer": None,  # the server did it, the client hears a reset
    "delay": None,  # the answer is held back, so that later requests are answered before
    "expired": None,  # 403 ExpiredToken
    "skewed": None,  # 403 RequestTimeTooSkewed
    "error200": ("GET", "PUT", "POST"),  # 200 with an <Error> body; the server never saw it
    **lies.LIES,
}
CANNED = {
    "500": ("500 Internal Server Error", "InternalError", ""),
    "503": ("503 Service Unavailable", "SlowDown", ""),
    "503_retry_after": ("503 Service Unavailable", "SlowDown", "Retry-After: {retry_after}\r\n"),
    "expired": ("403 Forbidden", "ExpiredToken", ""),
    "skewed": ("403 Forbidden", "RequestTimeTooSkewed", ""),
    "error200": ("200 OK", "InternalError", ""),
    "missing": ("404 Not Found", "NoSuchKey", ""),
    "denied": ("403 Forbidden", "AccessDenied", ""),
    "moved": ("301 Moved Permanently", "PermanentRedirect", "x-amz-bucket-region: xx-lie-1\r\n"),
}
DEFAULTS = {
    "faults": {},
    "script": [],
    "path": "",  # by chance only where this is found in the path
    "limit": None,  # most faults by chance
    "stall_s": 2.0,
    "delay_s": 1.0,
    "late_s": 5.0,
    "trickle_pause": 1.0,
    "retry_after": 1,
    "latency": 0.0,
    "rate": None,
    "down": False,
}


class Plan:
    """Which request gets which fault, and the counts."""

    def __init__(self, seed):
        self.seed, self.lock, self.numbers = seed, threading.Lock(), itertools.count(1)
        self.settings, self.memory = dict(DEFAULTS), lies.Memory()
        self.scripted = []  # [rule, how many matched]
        self.reset()

    def reset(self):
        with self.lock:
            self.methods, self.faults, self.statuses = (collections.Counter() for _ in range(3))
            self.bytes = {"up": 0, "down": 0}
            self.chances = 0
            self.log = collections.deque(maxlen=5000)

    def set(self, **changes):
        unknown = (changes.keys() - DEFAULTS.keys()) | (changes.get("faults", {}).keys() - FAULTS.keys())
        unknown |= {rule["fault"] for rule in changes.get("script", [])} - FAULTS.keys()
        if unknown:
            raise ValueError(f"unknown: {sorted(unknown)}")
        with self.lock:
            self.settings.update(changes)
            if "script" in changes:
                self.scripted = [[rule, 0] for rule in changes["script"]]
            if "faults" in changes:
                self.chances = 0

    def choose(self, head):
        """Count a request; its fault or None, and a source of choices for it."""
        with self.lock:
            number = next(self.numbers)
            dice = random.Random(f"{self.seed} {number}")
            fault = self.by_script(head) or self.by_chance(head, dice)
            self.methods[head.method] += 1
            entry = {"n": number, "method": head.method, "path": head.path, "fault": fault, "t": time.time()}
            self.log.append(entry)
            return fault, dice, entry

    def by_script(self, head):
        for item in self.scripted:
            rule = item[0]
            if rule.get("method", head.method) != head.method or not re.search(rule.get("path", ""), head.path):
                continue
            if not lies.fits(rule["fault"], head):
                continue
            item[1] += 1
            first = rule.get("nth", 1)
            if first <= item[1] < first + rule.get("times", 1):
                return rule["fault"]
        return None

    def by_chance(self, head, dice):
        settings = self.settings
        limit = settings["limit"]
        if limit is not None and self.chances >= limit or not re.search(settings["path"], head.path):
            return None
        if dice.random() >= sum(settings["faults"].values()):
            return None
        fitting = {name: weight for name, weight in settings["faults"].items()
                   if head.method in (FAULTS[name] or (head.method,)) and lies.fits(name, head)}
        if not sum(fitting.values()):
            return None
        self.chances += 1
        return dice.choices(list(fitting), list(fitting.values()))[0]

    def given(self, fault):
        with self.lock:
            self.faults[fault] += 1

    def moved(self, way, count):
        with self.lock:
            self.bytes[way] += count

    def stats(self):
        with self.lock:
            return {
                "requests": sum(self.methods.values()),
                "methods": dict(self.methods),
                "faults": dict(self.faults),
                "fault_count": sum(self.faults.values()),
                "statuses": dict(self.statuses),
                "bytes": dict(self.bytes),
            }


class Exchange(threading.Thread):
    """One client connection: request after request, each passed to a server connection."""

    def __init__(self, proxy, sock):
        super().__init__(daemon=True)
        self.proxy, self.plan = proxy, proxy.plan
        self.client, self.server = Wire(sock, proxy.limiter), None

    def run(self):
        reset = False
        try:
            while head := self.client.head():
                self.request(head)
        except Gone as gone:
            reset = gone.reset
        except OSError:
            reset = True
        finally:
            self.client.close(reset)
            self.drop_server()
            self.proxy.forget(self)

    def drop_server(self, reset=False):
        if self.server:
            self.server.close(reset)
            self.server = None

    def request(self, head):
        fault, dice, entry = self.plan.choose(head)
        settings = self.plan.settings
        self.plan.memory.note_request(head)
        if settings["latency"]:
            time.sleep(settings["latency"])
        if fault in ("late", "no_delete", "late_delete"):
            self.not_now(head, fault, settings, entry)
        elif fault in CANNED:
            self.canned(head, fault, settings, entry)
        elif fault == "reset_before":
            self.plan.given(fault)
            raise Gone(True)
        elif fault == "duplicate":
            self.twice(head, entry)
        elif lies.is_list(head) and fault in (None, "cut_list", "stale_list"):
            self.send_request(head, None, settings)
            self.answer_list(head, fault, entry)
        else:
            self.send_request(head, fault, settings, dice)
            self.answer(head, fault, dice, settings, entry)
        if not head.keeps_alive():
            raise Gone()

    def whole_body(self, head):
        self.expect(head)
        kept = []
        for piece in self.client.body(head.length()):
            self.client.limiter.take(len(piece))
            self.plan.moved("up", len(piece))
            kept.append(bytes(piece))
        return b"".join(kept)

    def not_now(self, head, fault, settings, entry):
        """The server gets the request late or never; the client hears a reset, or that all is done."""
        request = head_without_expect(head) + self.whole_body(head)
        self.plan.given(fault)
        if fault != "no_delete":
            lies.Later(self.proxy.connect, request, settings["late_s"])
        if fault == "late":
            raise Gone(True)
        status, text = ("204 No Content", b"") if head.method == "DELETE" else ("200 OK", lies.DELETED)
        self.note(entry, int(status[:3]))
        self.client.send(lies.raw_answer(status, text, method=head.method))

    def canned(self, head, fault, settings, entry):
        """An answer that the server never sees; the request's body is read away before."""
        self.whole_body(head)
        status, code, extra = CANNED[fault]
        text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>planned</Message></Error>'.encode()
        raw = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(text)}\r\n"
        raw += f"x-amz-request-id: planned\r\n{extra.format(**settings)}\r\n" if fault in lies.LIES else extra.format(**settings) + "\r\n"
        self.note(entry, int(status[:3]))
        self.plan.given(fault)
        self.client.send(raw.encode() + (b"" if head.method == "HEAD" else text))

    def expect(self, head):
        """A client that waits before it sends the body is told to go on."""
        if "100-continue" in head.fields.get("expect", "").lower():
            self.client.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def note(self, entry, status):
        entry["status"] = status
        with self.plan.lock:
            self.plan.statuses[str(status)] += 1

    def connect(self):
        if self.server and self.server.is_stale():
            self.drop_server()
        if self.server is None:
            try:
                self.server = Wire(self.proxy.connect(), NO_LIMIT)
            except OSError as error:
                raise Gone(True) from error

    def send_request(self, head, fault, settings, dice=None):
        self.connect()
        self.expect(head)
        self.server.send(self.request_raw(head, fault, dice))
        length = head.length()
        cut = stopping_point(fault in ("reset_request", "stall_request"), length)
        done = 0
        if fault == "reset_request" and not length:
            self.cut_off(fault)
        if fault == "trickle_request":
            self.plan.given(fault)
            self.client.slow_down(settings["trickle_pause"])
        for piece in self.client.body(length):
            self.client.limiter.take(len(piece))
            if cut is not None and done + len(piece) > cut:
                self.server.send(piece[: cut - done])
                if fault == "reset_request":
                    self.cut_off(fault)
                self.plan.given(fault)
                time.sleep(settings["stall_s"])
                self.server.send(piece[cut - done :])
                cut = None
            elif not self.pass_on(piece):
                return
            done += len(piece)
            self.plan.moved("up", len(piece))

    def request_raw(self, head, fault, dice):
        path = self.plan.memory.earlier(head, dice) if fault == "replay" else None
        if path is None:
            return head_without_expect(head)
        self.plan.given(fault)
        return lies.signed_again(head, path, "%s:%d" % self.proxy.upstream)

    def pass_on(self, piece):
        """False: the server answers before it has read everything, and closed."""
        try:
            self.server.send(piece)
            return True
        except Gone:
            if self.server.is_stale():
                return False
            raise

    def cut_off(self, fault):
        self.plan.given(fault)
        self.drop_server(reset=True)
        raise Gone(True)

    def server_head(self):
        """The server's final answer; what it says before (100 Continue) is for us."""
        while head := self.server.head():
            if head.status >= 200:
                return head
        raise Gone(True)

    def answer(self, request, fault, dice, settings, entry):
        head = self.server_head()
        length = head.answer_length(request.method)
        self.note(entry, head.status)
        if fault == "wrong_date":
            self.plan.given(fault)
            head.raw = lies.wrong_date(head.raw, dice)
        if fault == "trickle":
            self.plan.given(fault)
            whole = dice.random() < 0.5
            lies.send_slowly(self.client, [head.raw] if whole else [], settings["trickle_pause"])
            self.client.send(b"" if whole else head.raw)
            lies.send_slowly(self.client, self.server.body(length), settings["trickle_pause"])
            raise Gone()
        if fault == "delay":
            self.plan.given(fault)
            time.sleep((0.3 + 0.7 * dice.random()) * settings["delay_s"])
        if fault == "lost_answer":
            collections.deque(self.server.body(length), 0)
            self.plan.given(fault)
            raise Gone(True)
        if fault == "short" and head.status in (200, 206) and isinstance(length, int) and length > 1:
            self.shortened(head, length)
        self.relay(head, length, fault, dice, settings)
        if length == "close" or not head.keeps_alive():
            raise Gone()

    def answer_list(self, request, fault, entry):
        """Lists are kept: one may be given again, or in part."""
        head = self.server_head()
        body = self.server.content(head.answer_length(request.method))
        self.note(entry, head.status)
        if head.status == 200:
            first = self.plan.memory.first_list(request, body)
            if fault:
                self.plan.given(fault)
                body = lies.cut(body) if fault == "cut_list" else first if first != body else lies.EMPTY_LIST
        self.client.send(lies.raw_answer(" ".join(head.words[1:]), body))
        if not head.keeps_alive():
            raise Gone()

    def shortened(self, head, length):
        self.plan.given("short")
        self.client.send(head.with_length(length // 2))
        for piece in limited(self.server.body(length), length // 2):
            self.client.send(piece)
        raise Gone()

    def relay(self, head, length, fault, dice, settings):
        """Head and body to the client, broken on the way as the fault says."""
        breaks = fault in ("reset_answer", "stall", "truncate")
        cut = stopping_point(breaks, length)
        flip = dice.randrange(length) if fault == "corrupt" and head.status in (200, 206) and isinstance(length, int) and length else None
        if breaks and not length:
            self.client.send(head.raw[: len(head.raw) // 2])
            self.break_off(fault, settings)
            self.client.send(head.raw[len(head.raw) // 2 :])
            return
        self.client.send(head.raw)
        done = 0
        for piece in self.server.body(length):
            if flip is not None and done <= flip < done + len(piece):
                piece = bytearray(piece)
                piece[flip - done] ^= 1 << dice.randrange(8)
                self.plan.given(fault)
            if cut is not None and done + len(piece) > cut:
                self.client.send(piece[: cut - done])
                self.break_off(fault, settings)
                self.client.send(piece[cut - done :])
                cut = None
            else:
                self.client.send(piece)
            done += len(piece)
            self.plan.moved("down", len(piece))

    def break_off(self, fault, settings):
        self.plan.given(fault)
        if fault == "stall":
            time.sleep(settings["stall_s"])
            return
        raise Gone(fault == "reset_answer")

    def twice(self, head, entry):
        """The body is kept, sent, and sent again; the client hears the second answer only."""
        body = self.whole_body(head)
        self.plan.given("duplicate")
        for turn in range(2):
            self.connect()
            self.server.send(head_without_expect(head))
            self.server.send(body)
            if turn == 0:
                first = self.server_head()
                collections.deque(self.server.body(first.answer_length(head.method)), 0)
                if not first.keeps_alive():
                    self.drop_server()
        self.answer(head, None, None, None, entry)


def head_without_expect(head):
    """The proxy itself says 100 Continue; Expect is never part of a signature."""
    return re.sub(rb"(?i)\r\nexpect:[^\r]*", b"", head.raw)


def stopping_point(wanted, length):
    if not wanted or not length:
        return None
    return length // 2 if isinstance(length, int) else 40


def limited(pieces, count):
    for piece in pieces:
        yield piece[:count]
        count -= len(piece)
        if count <= 0:
            return


class Proxy:
    """The listening side, in the proxy's process."""

    def __init__(self, upstream, seed, port=0):
        host, _, number = upstream.rpartition(":")
        self.upstream, self.plan, self.limiter = (host, int(number)), Plan(seed), Limiter()
        self.lock, self.open, self.listener, self.port = threading.Lock(), set(), None, port
        self.listen()

    def listen(self):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 128 << 10)  # with a rate, what is unread waits at the sender
        listener.bind(("127.0.0.1", self.port))
        listener.listen(256)
        self.port = listener.getsockname()[1]
        self.listener = listener
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()

    def connect(self):
        return socket.create_connection(self.upstream, 30)

    def accept(self, listener):
        while True:
            try:
                sock = listener.accept()[0]
            except OSError:
                return
            with self.lock:
                if self.listener is not listener:
                    sock.close()
                    return
                exchange = Exchange(self, sock)
                self.open.add(exchange)
            exchange.start()

    def forget(self, exchange):
        with self.lock:
            self.open.discard(exchange)

    def go_down(self):
        """Refuse connections and end those that are open."""
        with self.lock:
            listener, self.listener, exchanges = self.listener, None, list(self.open)
        if listener:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for exchange in exchanges:
            for wire in (exchange.client, exchange.server):
                try:
                    wire.sock.shutdown(socket.SHUT_RDWR)
                except (OSError, AttributeError):
                    pass

    def set(self, **changes):
        self.plan.set(**changes)
        self.limiter.rate = self.plan.settings["rate"]
        down = self.plan.settings["down"]
        if down and self.listener:
            self.go_down()
        elif not down and self.listener is None:
            self.listen()

    def command(self, words):
        verb = words.pop("do")
        if verb == "set":
            self.set(**words)
        elif verb == "reset":
            self.plan.reset()
        elif verb == "log":
            with self.plan.lock:
                return list(self.plan.log)
        return self.plan.stats()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("upstream", help="HOST:PORT of the server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", default="1")
    args = parser.parse_args()
    proxy = Proxy(args.upstream, args.seed, args.port)
    print(json.dumps({"port": proxy.port}), flush=True)
    for line in sys.stdin:
        try:
            answer = {"answer": proxy.command(json.loads(line))}
        except (ValueError, TypeError, OSError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


class FaultProxy:
    """The proxy as tests use it."""

    def __init__(self, upstream, seed=1):
        self.upstream, self.seed, self.proc, self.port = upstream.removeprefix("http://"), seed, None, 0

    def start(self):
        command = [sys.executable, __file__, self.upstream, "--port", str(self.port), "--seed", str(self.seed)]
        self.proc = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = json.loads(self.proc.stdout.readline())["port"]
        return self

    @property
    def pid(self):
        return self.proc.pid

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"http://{self.address}"

    def ask(self, verb, **words):
        self.proc.stdin.write(json.dumps({"do": verb, **words}) + "\n")
        self.proc.stdin.flush()
        answer = json.loads(self.proc.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["answer"]

    def set(self, **changes):
        return self.ask("set", **changes)

    def calm(self):
        """No faults, no limits, up."""
        return self.set(**DEFAULTS)

    def stats(self):
        return self.ask("stats")

    def reset(self):
        """Counts begin anew."""
        return self.ask("reset")

    def log(self):
        """The last 5,000 requests: n, method, path, fault, status, t."""
        return self.ask("log")

    def stop(self):
        proc, self.proc = self.proc, None
        if proc:
            proc.kill()
            proc.wait(200)
            proc.stdin.close()
            proc.stdout.close()


if __name__ == "__main__":
    main()
