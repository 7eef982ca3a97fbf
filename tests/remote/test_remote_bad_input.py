# SPDX-License-Identifier: Apache-2.0
"""What a wrong remote gets: one clear line, the right exit code, no storm of requests, nothing lost, offline if it can."""
import http.server
import os
import shutil
import socket
import ssl
import struct
import subprocess
import threading
import zlib

import pytest

import fault_proxy
import remote as remotes
import rig
import s3_client

pytestmark = pytest.mark.needs_mount

FAILED = (1, 2, 32)
PATIENCE = 60  # seconds in which a mount without a state of its own must have said what is wrong
MOST_REQUESTS = 12
HEAD_RUNS_AT, HEAD_RUN_LEN = 336, 72  # docs/on-disk-format.md


@pytest.fixture
def node(on_remote, s3):
    """A store on the real server, not yet mounted; `options` and `env` of it can be spoilt."""
    return on_remote(s3, stage="64M", remote_timeout="5s")


def mount_once(mount, *args, **options):
    """`cairn mount` without -f: it returns when the mount is usable, or has failed."""
    command = ("mount", mount.store, mount.mnt, *args, "-o", mount.option_string(options))
    begin = rig.time.monotonic()
    done = mount.cairn(*command, timeout=300)
    return done, rig.time.monotonic() - begin


def refused(mount, *args, says=(), seconds=PATIENCE, **options):
    """Mounting fails with one line that says why, soon; nothing is left behind."""
    done, took = mount_once(mount, *args, **options)
    assert done.returncode in FAILED, done
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, f"not one line: {done.stderr!r}"
    assert any(word.lower() in lines[0].lower() for word in says) or not says, (lines[0], says)
    assert s3_client.SECRET not in done.stderr
    assert not rig.mounted_at(mount.mnt)
    assert took < seconds, f"it took {took:.0f} s to say: {lines[0]}"
    print(f"{done.returncode}: {lines[0]}")
    return lines[0]


def with_state(mount):
    """The store has state: it was mounted before, with the remote in order."""
    mount.mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"content")
    mount.umount(drain="remote")
    return mount


def goes_on_offline(mount, says=(), **options):
    """A store with state mounts without its remote, serves, saves, and says what is wrong."""
    mount.mount(timeout=30, **options)
    assert rig.read_file(os.path.join(mount.mnt, "file")) == b"content"
    mount.write("more", b"more", "nvme")
    status = rig.poll(lambda: mount.remote_status()["errors"] and mount.remote_status(), 30, "the error to be shown")
    assert status["error"] and s3_client.SECRET not in str(status)
    assert any(word.lower() in status["error"].lower() for word in says) or not says, status["error"]
    mount.umount()


def wrong_bucket(mount):
    mount.options["remote"] = "s3://no-such-bucket-here/prefix"


def wrong_key(mount):
    mount.env["AWS_ACCESS_KEY_ID"] = "nobody"


def wrong_secret(mount):
    mount.env["AWS_SECRET_ACCESS_KEY"] = "wrong"


def no_credentials(mount):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del mount.env[name]


def closed_port(mount):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        mount.options["endpoint_url"] = f"http://127.0.0.1:{sock.getsockname()[1]}"


def no_such_host(mount):
    mount.options["endpoint_url"] = "http://no-such-host.invalid"


WRONG = {
    "bucket": (wrong_bucket, ["no-such-bucket-here"]),
    "key": (wrong_key, ["key", "InvalidAccessKeyId", "credentials"]),
    "secret": (wrong_secret, ["secret", "signature", "credentials"]),
    "no credentials": (no_credentials, ["credentials"]),
    "closed port": (closed_port, ["127.0.0.1"]),
    "host": (no_such_host, ["no-such-host.invalid"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_for_an_empty_store(node, what):
    """Without a state of its own a store cannot do without its remote."""
    spoil, says = WRONG[what]
    spoil(node)
    refused(node, says=says)
    assert not os.path.exists(node.store) or os.listdir(node.store) == [], "something was left behind"


@pytest.mark.parametrize("what", WRONG)
def test_wrong_for_a_store_with_state(node, what):
    """It goes on offline, and shows what is wrong."""
    spoil, says = WRONG[what]
    with_state(node)
    spoil(node)
    goes_on_offline(node, says)


@pytest.mark.parametrize("fault", ["500", "expired", "skewed", "error200"])
def test_no_storm(on_remote, s3, proxy, fault, full):
    """A server that always fails is not asked again and again, neither at mount nor while mounted."""
    if fault in ("expired", "skewed") and not full:
        pytest.skip("skipped: only with --full")
    mount = with_state(on_remote(s3.through(proxy), stage="64M"))
    proxy.set(faults={fault: 1.0})
    proxy.reset()
    begin = rig.time.monotonic()
    mount.mount(timeout=300)
    rig.write_file(os.path.join(mount.mnt, "more"), b"more")
    rig.time.sleep(30 if full else 6)
    allowed = MOST_REQUESTS + 3 * (rig.time.monotonic() - begin)
    assert 1 <= proxy.stats()["requests"] <= allowed, proxy.stats()
    assert rig.read_file(os.path.join(mount.mnt, "file")) == b"content"
    proxy.calm()
    mount.wait_remote()  # and it comes back by itself
    mount.umount()


@pytest.mark.parametrize("fault, says",
                         [("skewed", ["clock", "time"]), ("expired", ["expired", "credentials"]),
                          ("error200", ["InternalError", "answer", "damaged"])])
def test_server_says_no(on_remote, s3, proxy, fault, says):
    """Clock and credentials are named; a 200 with an error inside is an error."""
    mount = on_remote(s3.through(proxy), stage="64M", remote_timeout="5s")
    proxy.set(faults={fault: 1.0})
    refused(mount, says=says)
    assert proxy.stats()["requests"] <= 60


class Page(http.server.BaseHTTPRequestHandler):
    """A web server that is no S3."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.count += 1
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"<html><body>It works!</body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET

    def log_message(self, *args):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, address):
        pass  # a client that refuses the certificate hangs up


@pytest.fixture
def web(request):
    """web(context=None): the URL of a web server that is no S3, with TLS if there is a context."""

    def start(context=None):
        server = Quiet(("127.0.0.1", 0), Page)
        server.count = 0
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        request.addfinalizer(lambda: (server.shutdown(), thread.join(), server.server_close()))
        return f"http{'s' if context else ''}://127.0.0.1:{server.server_port}", server

    return start


def test_not_s3(node, web):
    """A web server that answers everything with a page."""
    url, server = web()
    node.options["endpoint_url"] = url
    refused(node, says=["127.0.0.1", "S3"])
    assert server.count <= MOST_REQUESTS


def test_not_s3_with_state(node, web):
    with_state(node)
    node.options["endpoint_url"] = web()[0]
    goes_on_offline(node)


def self_signed(directory):
    """A certificate that no authority signed."""
    if not shutil.which("openssl"):
        pytest.skip("skipped: openssl is not installed")
    path = os.path.join(directory, "certificate.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path + ".key", "-out", path]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, path + ".key")
    return path, context


def test_certificate_that_nobody_vouches_for(node, web, directory):
    """P12: TLS is verified: not one request gets through. With the certificate given as trusted, it is the answer that is wrong."""
    path, context = self_signed(directory)
    url, server = web(context)
    node.options["endpoint_url"] = url
    refused(node, says=["certificate"])
    assert server.count == 0
    node.env["AWS_CA_BUNDLE"] = path
    refused(node)
    assert server.count >= 1


def test_remote_of_another_store(on_remote, remote):
    """A store with a history of its own does not take a remote with another."""
    other = on_remote(remote).mount()
    rig.write_file(os.path.join(other.mnt, "theirs"), b"theirs")
    other.umount(drain="remote")
    before = remote.names()
    empty = type(remote)(remote.rgw) if remote.kind == "s3" else remotes.DirRemote(remote.root)
    mine = with_state(on_remote(empty))
    mine.use(remote)
    line = refused(mine, says=["another", "other", "history", "key"])
    assert mine.store in line or remote.url in line
    assert remote.names() == before
    mine.use(empty)
    mine.mount()
    assert rig.read_file(os.path.join(mine.mnt, "file")) == b"content"
    mine.umount()


def test_store_without_remote_gets_one(on_remote, remote):
    """A store that was local until now is uploaded to an empty remote."""
    mount = on_remote(remote)
    kept = mount.options
    mount.options = {key: value for key, value in kept.items() if key not in remote.options()}
    mount.mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"content")
    mount.umount()
    mount.options = kept
    mount.mount()
    mount.wait_remote()
    mount.umount()
    with mount.elsewhere() as fresh:
        assert rig.read_file(os.path.join(fresh.mnt, "file")) == b"content"


def forge_head(remote, offset, value):
    """The newest head says another number, and the cut of its newest run is the head's; its checksum holds."""
    number, head = max(remote.heads().items())
    head = bytearray(head)
    struct.pack_into("<Q", head, offset, value)
    runs = struct.unpack_from("<I", head, 12)[0]
    struct.pack_into("<Q", head, HEAD_RUNS_AT + (runs - 1) * HEAD_RUN_LEN + 16, *struct.unpack_from("<Q", head, 104))
    struct.pack_into("<I", head, len(head) - 4, zlib.crc32(head[:-4]))
    remote.put(f"heads/{number:016x}", bytes(head))


@pytest.mark.parametrize("field, offset, value", [
    ("epoch", 72, (1 << 24) - 1), ("cut", 104, (1 << 64) - 1), ("inode", 144, (1 << 48) - 1), ("pack", 152, (1 << 64) - 1),
    ("newest inode", 144, 1), ("newest pack", 152, 0)])
def test_head_of_hostile_numbers(on_remote, remote, field, offset, value):
    """P12: numbers that would be given out twice, or after which there are none: refused, and a store that has a state keeps it."""
    mount = on_remote(remote, remote_timeout="5s").mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"content")
    rig.write_file(os.path.join(mount.mnt, "large"), rig.seeded_bytes(1, rig.MIB))
    mount.umount(drain="remote")
    forge_head(remote, offset, value)
    refused(mount.fresh(), says=["damaged", "taken over"])
    if field.startswith("newest"):
        return  # its own state it knows
    mount.mount(timeout=300)
    assert rig.read_file(os.path.join(mount.mnt, "file")) == b"content"
    assert mount.remote_status()["errors"] and mount.status()["epoch"] < 100
    mount.umount()


@pytest.mark.parametrize("value", ["", "s3:", "s3://", "s3:///prefix", "ftp://host/x", "dir:", "dir:relative/path", "nonsense",
                                   "s3://Bad_Bucket!/p"])
def test_remote_that_is_no_remote(node, value):
    """A wrong value of an option is named, without a request."""
    node.options = {key: kept for key, kept in node.options.items() if key != "remote"}
    done = node.cairn("mount", node.store, node.mnt, "-o", node.option_string({}), "--remote", value)
    assert done.returncode in FAILED and len(done.stderr.strip().splitlines()) == 1, done
    assert "remote" in done.stderr.lower()


def test_directory_that_cannot_be_written(on_remote, directory):
    """dir: a directory whose parent is missing, a file, a read-only filesystem."""
    rig.write_file(os.path.join(directory, "a-file"), b"x")
    missing = os.path.join(directory, "missing", "below")
    for path in (missing, os.path.join(directory, "a-file")):
        mount = on_remote(remotes.DirRemote(directory))
        mount.options["remote"] = f"dir:{path}"
        refused(mount, says=[path])


def test_secrets_stay_secret(on_remote, s3, proxy):
    """P12: no secret in argv, log, status or store, at the most talkative level."""
    mount = with_state(on_remote(s3.through(proxy), stage="64M", log_level="debug"))
    proxy.set(faults={"500": 0.5})
    mount.mount()
    mount.write("more", b"more", "remote")
    shown = mount.log() + str(mount.status()) + mount.cairn("status", mount.mnt).stdout
    shown += rig.read_file(f"/proc/{mount.proc.pid}/cmdline").decode()
    mount.umount()
    for top, _, names in os.walk(mount.store):
        for name in names:
            assert s3_client.SECRET.encode() not in rig.read_file(os.path.join(top, name)), name
    assert s3_client.SECRET not in shown and "Signature=" not in shown and "AWS4-HMAC" not in shown


# ---------------------------------------------------------------- with no mount

@pytest.fixture
def browsed(on_remote, remote):
    """A remote with a small tree, published."""
    mount = on_remote(remote).mount()
    os.makedirs(os.path.join(mount.mnt, "run", "step-1"))
    rig.write_file(os.path.join(mount.mnt, "run", "step-1", "model"), rig.seeded_bytes(1, 3_000_001))
    rig.write_file(os.path.join(mount.mnt, "run", "latest"), b"step-1")
    mount.umount(drain="remote")
    return mount


@pytest.mark.parametrize("where", ["remote", "store"])
def test_ls_and_cp(browsed, remote, directory, where):
    """Browse and restore with no mount, from the remote and from the store."""
    spec = remote.spec if where == "remote" else lambda path: f"{browsed.store}:{path}"
    flags = remote.flags() if where == "remote" else []
    assert sorted(browsed.verb("ls", *flags, spec("run")).stdout.split()) == ["latest", "step-1"]
    target = os.path.join(directory, "restored")
    browsed.verb("cp", "-r", *flags, spec("run"), target)
    assert rig.read_file(os.path.join(target, "step-1", "model")) == rig.seeded_bytes(1, 3_000_001)
    done = browsed.cairn("cp", *flags, spec("run/latest"), os.path.join(directory, "one"))
    assert done.returncode == 0 and rig.read_file(os.path.join(directory, "one")) == b"step-1"


def test_ls_and_cp_of_nothing(browsed, remote, directory):
    """A path that is not there, a remote with nothing in it: one line, exit code 1, no half file."""
    target = os.path.join(directory, "target")
    for verb, *rest in (("ls", remote.spec("no/such")), ("cp", remote.spec("no/such"), target)):
        done = browsed.cairn(verb, *remote.flags(), *rest)
        assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done
        assert "no/such" in done.stderr
    done = browsed.cairn("ls", *remote.flags(), remote.spec("run").replace(remote.url, remote.url + "-not-there"))
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done
    assert not os.path.exists(target)


@pytest.mark.parametrize("remote", ["s3"], indirect=True)
def test_read_only_credentials_are_enough(browsed, remote):
    """A mount with -o ro writes nothing into the remote."""
    proxy = fault_proxy.FaultProxy(remote.endpoint).start()
    try:
        with browsed.elsewhere(remote.through(proxy), ro=True) as fresh:
            assert rig.read_file(os.path.join(fresh.mnt, "run", "latest")) == b"step-1"
        assert set(proxy.stats()["methods"]) <= {"GET", "HEAD"}, proxy.stats()
    finally:
        proxy.stop()


def test_no_credentials_is_said_whole(on_remote, directory):
    """The first message that everybody meets: the host that would be asked, what to do, and each place that was looked at, to the last."""
    node = on_remote(remotes.DirRemote(directory + "/remotes"))
    node.options |= {"remote": "s3://bucket/run7", "region": "eu-west-3"}
    line = refused(node)
    for words in ("https://s3.eu-west-3.amazonaws.com/bucket/run7/cairn", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                  "no web identity", "no container (AWS_CONTAINER_CREDENTIALS_FULL_URI is not set)", "switched off (AWS_EC2_METADATA_DISABLED)"):
        assert words in line, (words, line)
    assert line.endswith("(AWS_EC2_METADATA_DISABLED)"), line
    node.mount(remote=None, region=None, lease=None)
    node.remount()
    error = rig.poll(lambda: node.remote_status()["error"], 30, "the error")
    assert "https://s3.eu-west-3.amazonaws.com/" in error and error.endswith("(AWS_EC2_METADATA_DISABLED)"), error
    node.umount()


def test_a_key_that_may_only_read_is_told_at_once(on_remote, s3, proxy):
    """Not after the wait for the lease of a holder that died; and with `ro` the key is enough."""
    holder = on_remote(s3, lease="60s").mount()
    holder.write("file", b"data", "remote")
    holder.kill9()
    proxy.set(script=[{"method": method, "fault": "denied", "times": 10**6} for method in ("PUT", "DELETE", "POST")])
    node = holder.fresh(s3.through(proxy))
    line = refused(node, says=["mount with -o ro to read"], seconds=30)
    assert "PUT" in line and "AccessDenied" in line, line
    node.mount(ro=True)
    assert rig.read_file(node.mnt + "/file") == b"data"
    node.umount()
