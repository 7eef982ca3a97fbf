# SPDX-License-Identifier: Apache-2.0
"""The fault proxy itself: each fault is seen by a plain client, against a tiny server and against the real RGW."""
import contextlib
import email.utils
import http.client
import http.server
import json
import threading
import time

import pytest

import fault_proxy
import rig
import s3_client

DATA = rig.seeded_bytes(7, 300_000)


class Shelf(http.server.BaseHTTPRequestHandler):
    """Keeps what is PUT, gives it back; knows how often it was asked."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_PUT(self):
        self.server.seen.append(self.command)
        self.server.shelf[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, b"")

    def do_GET(self):
        self.server.seen.append(self.command)
        if self.path == "/chunked":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nabcde\r\n6\r\nfghijk\r\n0\r\n\r\n")
            return
        if self.path == "/host":
            return self.answer(200, self.headers["Host"].encode())
        body = self.server.shelf.get(self.path)
        self.answer(200 if body is not None else 404, body or b"")

    do_HEAD = do_GET

    def do_DELETE(self):
        self.server.seen.append(self.command)
        self.server.shelf.pop(self.path, None)
        self.answer(204, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *args):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass  # the proxy resets connections


@pytest.fixture
def shelf():
    server = Quiet(("127.0.0.1", 0), Shelf)
    server.shelf, server.seen = {"/x": DATA}, []
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def broken(shelf, seed):
    made = fault_proxy.FaultProxy(f"127.0.0.1:{shelf.server_port}", seed).start()
    yield made
    made.stop()


def ask(proxy, method, path, body=None, timeout=5):
    """One request on a connection of its own: (status, body, headers)."""
    connection = http.client.HTTPConnection(proxy.address, timeout=timeout)
    with contextlib.closing(connection):
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers


def always(fault, **more):
    return {"faults": {fault: 1.0}, **more}


def test_passes_everything_on(broken, shelf):
    """Calm: bodies, lengths, chunked answers, HEAD, one connection for many requests, Host unchanged."""
    connection = http.client.HTTPConnection(broken.address, timeout=5)
    for number in range(5):
        connection.request("PUT", f"/n{number}", DATA[: 1000 * number])
        assert connection.getresponse().read() == b""
    for number in range(5):
        connection.request("GET", f"/n{number}")
        assert connection.getresponse().read() == DATA[: 1000 * number]
    connection.request("HEAD", "/x")
    answer = connection.getresponse()
    assert answer.headers["Content-Length"] == str(len(DATA)) and answer.read() == b""
    connection.request("GET", "/chunked")
    assert connection.getresponse().read() == b"abcdefghijk"
    connection.request("GET", "/host", headers={"Host": "else.where:99"})
    assert connection.getresponse().read() == b"else.where:99"
    connection.request("GET", "/nothing")
    assert connection.getresponse().status == 404
    connection.close()
    stats = broken.stats()
    assert stats["methods"] == {"PUT": 5, "GET": 8, "HEAD": 1}
    assert stats["fault_count"] == 0 and stats["bytes"]["up"] == 10_000


@pytest.mark.parametrize("fault, status, code",
                         [("500", 500, b"InternalError"), ("503", 503, b"SlowDown"), ("expired", 403, b"ExpiredToken"),
                                                 ("skewed", 403, b"RequestTimeTooSkewed"), ("error200", 200, b"<Error>")])
def test_answers_of_its_own(broken, shelf, fault, status, code):
    """The server never sees the request; the answer looks like one of S3."""
    broken.set(**always(fault))
    for method, body in (("PUT", DATA), ("GET", None)):
        answer = ask(broken, method, "/y", body)
        assert answer[0] == status and code in answer[1]
        assert "Retry-After" not in answer[2]
    assert shelf.seen == [] and broken.stats()["faults"] == {fault: 2}


def test_retry_after(broken):
    broken.set(**always("503_retry_after", retry_after=7))
    status, _, headers = ask(broken, "GET", "/x")
    assert status == 503 and headers["Retry-After"] == "7"


@pytest.mark.parametrize("fault, done", [("reset_before", False), ("reset_request", False), ("reset_answer", True), ("lost_answer", True)])
def test_resets(broken, shelf, fault, done):
    """The client hears a reset; whether the server did it depends on when."""
    broken.set(**always(fault))
    with pytest.raises((ConnectionResetError, BrokenPipeError, http.client.HTTPException)):
        ask(broken, "PUT", "/y", DATA)
    time.sleep(0.1)
    assert (shelf.shelf.get("/y") == DATA) == done
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(broken, "GET", "/x")
    assert broken.stats()["faults"] == {fault: 2}


def test_stall(broken):
    """No byte for a while: a client with patience gets everything, another gives up."""
    broken.set(**always("stall", stall_s=0.6))
    begin = time.monotonic()
    assert ask(broken, "GET", "/x")[1] == DATA
    assert time.monotonic() - begin >= 0.6
    with pytest.raises(TimeoutError):
        ask(broken, "GET", "/x", timeout=0.2)


def test_stalled_upload(broken, shelf):
    broken.set(**always("stall_request", stall_s=0.5))
    begin = time.monotonic()
    assert ask(broken, "PUT", "/y", DATA)[0] == 200
    assert time.monotonic() - begin >= 0.5 and shelf.shelf["/y"] == DATA


def test_truncation(broken):
    """Content-Length is right, the body is not."""
    broken.set(**always("truncate"))
    with pytest.raises(http.client.IncompleteRead) as caught:
        ask(broken, "GET", "/x")
    assert caught.value.partial == DATA[: len(DATA) // 2]


def test_a_lie_about_the_length(broken):
    broken.set(**always("short"))
    status, body, headers = ask(broken, "GET", "/x")
    assert status == 200 and body == DATA[: len(DATA) // 2] and headers["Content-Length"] == str(len(body))


def test_corruption(broken):
    """One bit of the body differs."""
    broken.set(**always("corrupt"))
    body = ask(broken, "GET", "/x")[1]
    wrong = [at for at in range(len(DATA)) if body[at] != DATA[at]]
    assert len(body) == len(DATA) and len(wrong) == 1
    assert (body[wrong[0]] ^ DATA[wrong[0]]).bit_count() == 1


def test_duplicate(broken, shelf):
    broken.set(**always("duplicate"))
    assert ask(broken, "PUT", "/y", DATA)[0] == 200
    assert ask(broken, "GET", "/y")[1] == DATA
    assert shelf.seen == ["PUT", "PUT", "GET", "GET"]


def test_delay_reorders(broken):
    """A held answer comes after that of a later request."""
    broken.set(script=[{"path": "/first", "fault": "delay"}], delay_s=0.8)
    ends = {}

    def get(path):
        ask(broken, "GET", path)
        ends[path] = time.monotonic()

    first = threading.Thread(target=get, args=("/first",))
    first.start()
    time.sleep(0.05)
    get("/second")
    first.join()
    assert broken.stats()["faults"] == {"delay": 1}
    assert ends["/second"] < ends["/first"]


def test_rate_and_latency(broken):
    """The limit holds for all connections together; latency is added to each request."""
    broken.set(rate=1_000_000)
    begin = time.monotonic()
    threads = [threading.Thread(target=ask, args=(broken, "GET", "/x")) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert 0.6 < time.monotonic() - begin < 2.5 * rig.PATIENCE
    broken.set(rate=None, latency=0.2)
    begin = time.monotonic()
    ask(broken, "GET", "/nothing")
    assert time.monotonic() - begin >= 0.2


def test_down_and_up(broken):
    """Refused while down, also on a connection that was open; the same port afterwards."""
    kept = http.client.HTTPConnection(broken.address, timeout=5)
    kept.request("GET", "/x")
    kept.getresponse().read()
    broken.set(down=True)
    with pytest.raises(ConnectionRefusedError):
        ask(broken, "GET", "/x")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        kept.request("GET", "/x")
        kept.getresponse()
    broken.set(down=False)
    assert ask(broken, "GET", "/x")[1] == DATA


def test_trickle(broken, shelf):
    """Answers and requests byte by byte."""
    broken.set(**always("trickle", trickle_pause=0.002))
    shelf.shelf["/y"] = b"x" * 100
    begin = time.monotonic()
    assert ask(broken, "GET", "/y")[1] == b"x" * 100
    assert time.monotonic() - begin >= 0.2
    broken.set(**always("trickle_request", trickle_pause=0.002))
    begin = time.monotonic()
    assert ask(broken, "PUT", "/z", b"y" * 200)[0] == 200 and shelf.shelf["/z"] == b"y" * 200
    assert time.monotonic() - begin >= 0.2


@pytest.mark.parametrize("fault, status, code", [("missing", 404, b"NoSuchKey"), ("denied", 403, b"AccessDenied"),
                                                 ("moved", 301, b"PermanentRedirect")])
def test_false_refusals(broken, shelf, fault, status, code):
    broken.set(**always(fault))
    answer = ask(broken, "GET", "/x")
    assert answer[0] == status and code in answer[1] and shelf.seen == []
    assert ("xx-lie-1" in str(answer[2])) == (fault == "moved")


def test_deletions_that_do_nothing_or_come_late(broken, shelf):
    """The client hears that it is done."""
    broken.set(**always("no_delete"))
    assert ask(broken, "DELETE", "/x")[0] == 204
    assert b"DeleteResult" in ask(broken, "POST", "/b?delete=", b"<Delete/>")[1]
    assert ask(broken, "GET", "/x")[1] == DATA and shelf.seen == ["GET"]
    broken.set(**always("late_delete", late_s=0.3))
    assert ask(broken, "DELETE", "/x")[0] == 204
    assert ask(broken, "GET", "/x")[0] == 200
    rig.poll(lambda: ask(broken, "GET", "/x")[0] == 404, 10, "the deletion")


def test_a_request_that_is_done_late(broken, shelf):
    """The client hears a reset; the server gets it later."""
    broken.set(script=[{"method": "PUT", "fault": "late"}], late_s=0.3)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        ask(broken, "PUT", "/y", DATA)
    assert "/y" not in shelf.shelf
    rig.poll(lambda: shelf.shelf.get("/y") == DATA, 10, "the late request")


def test_wrong_date(broken):
    broken.set(**always("wrong_date"))
    date = email.utils.parsedate_to_datetime(ask(broken, "GET", "/x")[2]["Date"])
    assert 60 <= abs(date.timestamp() - time.time()) <= 3700


def test_script(broken):
    """The n-th request that matches, and no other."""
    broken.set(script=[{"method": "GET", "path": "^/x", "nth": 2, "times": 2, "fault": "503"}])
    assert [ask(broken, "GET", path)[0] for path in ("/x", "/nothing", "/x", "/x", "/x")] == [200, 404, 503, 503, 200]
    log = broken.log()
    assert [entry["fault"] for entry in log] == [None, None, "503", "503", None]
    with pytest.raises(ValueError):
        broken.set(faults={"nonsense": 1})


def test_chance_is_seeded(shelf, seed):
    """The same seed gives the same faults; the share is as asked; the limit holds."""
    seen = []
    for _ in range(2):
        proxy = fault_proxy.FaultProxy(f"127.0.0.1:{shelf.server_port}", seed).start()
        try:
            proxy.set(faults={"500": 0.1, "503": 0.1, "truncate": 0.1}, limit=50)
            for number in range(200):
                ask(proxy, "HEAD", "/x")
            seen.append([entry["fault"] for entry in proxy.log()])
        finally:
            proxy.stop()
    assert seen[0] == seen[1]
    given = [fault for fault in seen[0] if fault]
    assert 30 <= len(given) <= 50 and "truncate" not in given


# ---------------------------------------------------------------- with the real server

@pytest.fixture
def through(s3, proxy):
    """The remote as seen through the proxy by a client that signs the proxy's address."""
    return s3, s3_client.S3Client(proxy.url), proxy


def test_signature_survives(through):
    """RGW verifies the signature over the Host that the client saw, whatever its own port is."""
    remote, client, proxy = through
    client.put(remote.bucket, f"{remote.prefix}/a b+c", DATA)
    assert client.get(remote.bucket, f"{remote.prefix}/a b+c") == DATA
    assert client.get(remote.bucket, f"{remote.prefix}/a b+c", 5, 9) == DATA[5:10]
    assert client.list(remote.bucket, remote.prefix) == {f"{remote.prefix}/a b+c": len(DATA)}
    with pytest.raises(s3_client.S3Error) as caught:
        s3_client.S3Client(proxy.url, secret="wrong").list(remote.bucket)
    assert caught.value.status == 403 and b"SignatureDoesNotMatch" in caught.value.body


def test_lost_answer_of_put_new(through):
    """The case that a nonce must settle: it was done, the client does not know, the repetition is refused."""
    remote, client, proxy = through
    proxy.set(script=[{"method": "PUT", "fault": "lost_answer"}])
    with pytest.raises((OSError, http.client.HTTPException)):
        once = http.client.HTTPConnection(proxy.address, timeout=10)
        path = f"/{remote.bucket}/{remote.prefix}/head"
        once.request("PUT", path, b"mine", client.signed("PUT", path, "", b"mine", {"If-None-Match": "*"}))
        once.getresponse()
    assert remote.get("head") == b"mine"
    assert not remote.put_new("head", b"other") and remote.get("head") == b"mine"


def test_duplicate_of_put_new(through):
    """Sent twice by the network: the second answer says 412."""
    remote, client, proxy = through
    proxy.set(script=[{"method": "PUT", "fault": "duplicate"}])
    with pytest.raises(s3_client.S3Error) as caught:
        client.put(remote.bucket, f"{remote.prefix}/head", b"mine", **{"If-None-Match": "*"})
    assert caught.value.status == 412 and remote.get("head") == b"mine"


def test_lists_and_heads_of_before(through):
    """With the real server: a list in part, one of before, an earlier head in place of the newest."""
    remote, client, proxy = through
    for number in range(1, 5):
        client.put(remote.bucket, f"{remote.prefix}/heads/{number:016x}", b"head %d" % number)
        assert len(client.list(remote.bucket, f"{remote.prefix}/heads/")) == number
    proxy.set(**always("cut_list"))
    assert len(client.list(remote.bucket, f"{remote.prefix}/heads/")) == 2
    proxy.set(**always("stale_list"))
    assert len(client.list(remote.bucket, f"{remote.prefix}/heads/")) == 1
    assert client.list(remote.bucket, f"{remote.prefix}/other/") == {}
    proxy.set(**always("replay"))
    assert client.get(remote.bucket, f"{remote.prefix}/heads/{4:016x}") in (b"head 1", b"head 2", b"head 3")
    assert client.get(remote.bucket, f"{remote.prefix}/heads/{1:016x}") == b"head 1"


def test_proxy_keeps_up(through, report):
    """Streams pass fast enough that the proxy is not what is measured."""
    remote, client, proxy = through
    data = rig.seeded_bytes(1, 64 * rig.MIB)
    client.put(remote.bucket, f"{remote.prefix}/large", data)
    times = {}
    for name, one in (("direct", remote.client), ("proxy", client)):
        begin = time.monotonic()
        assert one.get(remote.bucket, f"{remote.prefix}/large") == data
        times[name] = len(data) / (time.monotonic() - begin) / 1e6
    report("fault-proxy", {f"get_mb_s_{name}": rate for name, rate in times.items()})
    assert times["proxy"] > 20  # others run beside it


# ---------------------------------------------------------------- remotes

def test_remote_by_hand(remote, rng, directory):
    """Both kinds: list, read, change, create once, copy as a whole, download, wipe."""
    objects = {"heads/0000000000000001": b"one", "packs/ab/x": rig.seeded_bytes(1, 5 * rig.MIB), "packs/ab/y": b""}
    for name, data in objects.items():
        remote.put(name, data)
    assert remote.names() == {name: len(data) for name, data in objects.items()}
    assert set(remote.names("packs/")) == {"packs/ab/x", "packs/ab/y"}
    assert not remote.put_new("heads/0000000000000001", b"two") and remote.put_new("heads/0000000000000002", b"two")
    other = remote.copy()
    remote.corrupt("packs/ab/x", rng)
    remote.delete("packs/ab/y")
    assert remote.heads() == {1: b"one", 2: b"two"} and len(remote.names()) == 3
    assert other.get("packs/ab/x") == objects["packs/ab/x"] != remote.get("packs/ab/x")
    with pytest.raises(KeyError):
        remote.get("packs/ab/y")
    target = f"{directory}/copy"
    other.download(target)
    assert rig.read_file(f"{target}/packs/ab/x") == objects["packs/ab/x"]
    remote.wipe()
    assert remote.names() == {}
    print(json.dumps(other.names()))


def test_many_names(s3):
    """Lists longer than one page."""
    names = [f"n/{number:04d}" for number in range(1100)]
    s3.each(lambda name: s3.put(name, b"x"), names)
    assert sorted(s3.names()) == names
