# SPDX-License-Identifier: Apache-2.0
"""Remotes for tests: a real Ceph RGW and a directory, looked into without the code under test; mounts on them.

A remote (S3Remote, DirRemote) is one prefix: names -> bytes. It can be listed, read, changed and copied as a whole, at a
moment, to another prefix. RemoteMount is a Mount on a remote; PlainRemote is a model of it over a plain directory, to try the
tests themselves.
"""
import concurrent.futures
import contextlib
import fcntl
import io
import itertools
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import tarfile
import tempfile
import threading
import time

import rig
import s3_client

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = ("ceph", "ceph-mon", "ceph-mgr", "ceph-osd", "radosgw", "radosgw-admin")
COUNTER = itertools.count(1)


# ---------------------------------------------------------------- the server

def free_ports(count=3):
    """The first of some free neighbouring ports."""
    dice = random.SystemRandom()
    for _ in range(200):
        first = dice.randrange(20000, 32000)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise RuntimeError("no free ports")


GARBAGE_MAX, SHARED_BYTES = 256 << 20, 6 << 30


class Rgw:
    """A Ceph RGW with its data in memory, started by tests/rgw; CAIRN_TEST_S3=URL uses one that runs already."""

    def __init__(self):
        self.directory, self.endpoint, self.users, self.guard = None, os.environ.get("CAIRN_TEST_S3"), None, None
        self.is_shared = False
        self.garbage = 0  # bytes that were deleted, and not reclaimed
        self.script = os.path.join(HERE, "rgw")
        self.bucket = f"cairn-test-{os.getpid()}"

    def missing(self):
        """Why there can be no RGW, or None."""
        if self.endpoint:
            return None
        absent = [name for name in PROGRAMS if not shutil.which(name)]
        if absent:
            return f"these programs are missing: {' '.join(absent)}"
        return None if os.path.exists(self.script) else f"{self.script} is missing"

    def start(self, shared=None):
        """`shared`: a directory of processes that use one server; the first one starts it, and it goes with the last."""
        self.is_shared = bool(shared)
        if not self.endpoint and shared:
            with open(os.path.join(shared, "rgw.lock"), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                place = os.path.join(shared, "rgw")
                if not self.join(place):
                    self.begin()
                    rig.write_file(place, f"{self.directory} {self.endpoint}".encode())
        elif not self.endpoint:
            self.begin()
        self.client = s3_client.S3Client(self.endpoint)
        self.client.make_bucket(self.bucket)
        return self

    def use(self, directory):
        """As long as this file is open, and locked, the server stays. OSError: there is none, or it goes."""
        users = open(os.path.join(directory, "users"), "a")
        try:
            fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            users.close()
            raise
        self.directory, self.users = directory, users

    def join(self, place):
        """False: there is no server to join."""
        try:
            directory, endpoint = rig.read_file(place).decode().split()
            self.use(directory)
        except OSError:
            return False
        self.endpoint = endpoint
        return True

    def begin(self):
        self.use(tempfile.mkdtemp(prefix="cairn-test-rgw-"))
        # Whatever becomes of its users: a shell that gets the lock takes the server down.
        last = ["bash", "-c", 'bash "$0" down "$1"; rm -rf "$1"', self.script, self.directory]
        self.guard = subprocess.Popen(["flock", self.users.name, *last], stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            self.endpoint = self.up()
        except BaseException:
            self.stop()
            raise

    def up(self):
        done = self.call("up", str(free_ports()), timeout=300)
        if done.returncode:
            raise RuntimeError(f"{self.script} up: {done.returncode} {done.stderr[-2000:]}")
        return done.stdout.strip().splitlines()[-1]

    def call(self, verb, *args, timeout):
        """The daemons that `up` leaves behind must not hold our pipes open: output goes to files."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            command = ["bash", self.script, verb, self.directory, *args]
            size = {"MEMSTORE_BYTES": str(SHARED_BYTES)} if self.is_shared else {}
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, timeout=timeout, env=os.environ | size)
            out.seek(0), err.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, out.read(), err.read())

    def reclaim(self):
        """What was deleted leaves memory now, if it is much."""
        if self.garbage < GARBAGE_MAX:
            return
        self.garbage = 0
        conf = os.path.join(self.directory or "", "ceph.conf")
        if self.directory and os.path.exists(conf):
            subprocess.run(["radosgw-admin", "-c", conf, "gc", "process", "--include-all"], capture_output=True, timeout=300)

    def stop(self):
        """Returns when it is down; where others may use it, at once."""
        if self.users:
            self.users.close()
        if self.guard and not self.is_shared:
            self.guard.wait(200)


# ---------------------------------------------------------------- remotes

def runs_of(head):
    """The ids of the runs that the bytes of a head name, oldest first."""
    return [struct.unpack_from("<Q", head, 336 + 72 * i)[0] for i in range(struct.unpack_from("<I", head, 12)[0])]


class Remote:
    """What both kinds share."""

    def objects(self):
        """Names that matter; a mount that is refused may leave no other."""
        return {name for name in self.names() if name.startswith(("heads/", "packs/", "runs/", "copies/", "cairn"))}

    def options(self):
        """Options of a mount on this remote."""
        return {"remote": self.url}

    def flags(self):
        """The same for verbs that need no mount."""
        return []

    def spec(self, path=""):
        """How `cairn ls` and `cairn cp` name a path in this remote."""
        return f"{self.url}:{path}"

    def env(self):
        """Nothing of this machine's own configuration is used."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        none = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"}
        return {**kept, **none}

    def corrupt(self, name, rng):
        """Flip one bit of an object."""
        data = bytearray(self.get(name))
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        self.put(name, bytes(data))

    def heads(self):
        """number -> bytes of the heads that are there. (Files that are still being put have other names.)"""
        found = {}
        for name in sorted(self.names("heads/")):
            if re.fullmatch("heads/[0-9a-f]{16}", name):
                with contextlib.suppress(KeyError):
                    found[int(name[-16:], 16)] = self.get(name)
        return found

    def bytes(self):
        return sum(self.names().values())


class S3Remote(Remote):
    kind = "s3"

    def __init__(self, rgw, prefix=None, endpoint=None):
        self.rgw, self.client, self.bucket = rgw, rgw.client, rgw.bucket
        self.prefix = prefix or f"p{next(COUNTER)}"
        self.endpoint = endpoint or rgw.endpoint
        self.copies = []

    @property
    def url(self):
        return f"s3://{self.bucket}/{self.prefix}"

    def options(self):
        return {**super().options(), "endpoint_url": self.endpoint, "region": s3_client.REGION}

    def flags(self):
        return ["--endpoint-url", self.endpoint, "--region", s3_client.REGION]

    def env(self):
        return {**super().env(), "AWS_ACCESS_KEY_ID": s3_client.KEY, "AWS_SECRET_ACCESS_KEY": s3_client.SECRET}

    def through(self, proxy):
        """The same remote, reached by another way."""
        return S3Remote(self.rgw, self.prefix, proxy.url)

    def beside(self, name):
        """An empty remote of its own, wiped together with this one."""
        other = S3Remote(self.rgw, f"{self.prefix}-{name}")
        self.copies.append(other)
        return other

    def names(self, below=""):
        found = self.client.list(self.bucket, f"{self.prefix}/{below}")
        return {key[len(self.prefix) + 1 :]: size for key, size in found.items()}

    def get(self, name):
        try:
            return self.client.get(self.bucket, f"{self.prefix}/{name}")
        except s3_client.S3Error as error:
            raise KeyError(name) if error.status == 404 else error

    def put(self, name, data):
        self.client.put(self.bucket, f"{self.prefix}/{name}", data)

    def put_new(self, name, data):
        try:
            self.client.put(self.bucket, f"{self.prefix}/{name}", data, **{"If-None-Match": "*"})
            return True
        except s3_client.S3Error as error:
            if error.status == 412:
                return False
            raise

    def delete(self, name):
        self.client.delete(self.bucket, f"{self.prefix}/{name}")

    def copy(self):
        """Everything that is there now, under another prefix. What a deletion under way takes is not missed."""
        other = S3Remote(self.rgw)
        self.copies.append(other)
        self.each(lambda name: self.copy_one(name, other), self.names())
        return other

    def copy_one(self, name, other):
        try:
            self.client.copy(self.bucket, f"{self.prefix}/{name}", f"{other.prefix}/{name}")
        except s3_client.S3Error as error:
            if error.status != 404:
                raise

    def each(self, function, names):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(function, names))

    def download(self, directory):
        """Everything that is there now, as files in a directory."""
        for name in self.names():
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            rig.write_file(path, self.get(name))

    def wipe(self):
        for copy in self.copies:
            copy.wipe()
        there = self.names()
        self.each(self.delete, there)
        self.rgw.garbage += sum(there.values())


class DirRemote(Remote):
    kind = "dir"

    def __init__(self, root, path=None):
        self.root = root
        self.path = path or os.path.join(root, f"p{next(COUNTER)}")
        os.makedirs(self.path, exist_ok=True)

    @property
    def url(self):
        return f"dir:{self.path}"

    def names(self, below=""):
        found = {}
        for top, _, names in os.walk(os.path.join(self.path, below)):
            for name in names:
                path = os.path.join(top, name)
                with contextlib.suppress(FileNotFoundError):
                    found[os.path.relpath(path, self.path)] = os.path.getsize(path)
        return found

    def file(self, name):
        return os.path.join(self.path, name)

    def get(self, name):
        try:
            return rig.read_file(self.file(name))
        except FileNotFoundError:
            raise KeyError(name) from None

    def put(self, name, data):
        os.makedirs(os.path.dirname(self.file(name)), exist_ok=True)
        temporary = f"{self.file(name)}.{next(COUNTER)}.put"
        rig.write_file(temporary, data)
        os.replace(temporary, self.file(name))

    def put_new(self, name, data):
        os.makedirs(os.path.dirname(self.file(name)), exist_ok=True)
        temporary = f"{self.file(name)}.{next(COUNTER)}.put"
        rig.write_file(temporary, data)
        try:
            os.link(temporary, self.file(name))
            return True
        except FileExistsError:
            return False
        finally:
            os.unlink(temporary)

    def delete(self, name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.file(name))

    def copy(self):
        other = DirRemote(self.root)
        self.download(other.path)
        return other

    def download(self, directory):
        for name in self.names():
            path = os.path.join(directory, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(self.file(name), path)

    def wipe(self):
        shutil.rmtree(self.path, ignore_errors=True)


# ---------------------------------------------------------------- mounts

class RemoteMount(rig.Mount):
    """A private store on a remote."""

    def __init__(self, root, binary, remote, **options):
        lease = "20s" if options.get("nodes") else "10s"  # a node that stands still for so long is taken for lost
        super().__init__(root, binary, **{"lease": lease, **remote.options(), **options})
        self.remote, self.count = remote, 0
        self.env = remote.env()

    def use(self, remote):
        """From the next mount on another remote, or another way to this one."""
        self.options = {**self.own_options(), **remote.options()}
        self.remote = remote
        return self

    def fresh(self, remote=None, kind=None, **options):
        """A mount with an empty store, as on another node, on the same remote or another. Not yet mounted."""
        self.count += 1
        root = os.path.join(self.root, f"fresh-{self.count}")
        os.makedirs(root)
        return self.make(root, kind=kind or RemoteMount, remote=remote or self.remote, **{**self.own_options(), **options})

    def refused(self, **options):
        """`cairn mount` fails, and nothing is mounted. Returns what it says."""
        done = self.verb("mount", self.store, self.mnt, "-o", self.option_string(options), code=32)
        assert not rig.mounted_at(self.mnt)
        return done.stderr

    def wait_of(self, path):
        """Exit code and message of a wait for the remote."""
        done = self.cairn("wait", "--level", "remote", "--timeout", "60s", path)
        return done.returncode, done.stderr

    @contextlib.contextmanager
    def elsewhere(self, remote=None, ro=False, **options):
        """A mount on another node, with an empty store at first; at the end it is unmounted."""
        node = self.fresh(remote, ro=ro, **options)
        node.mount(ro=ro)
        yield node
        node.umount()

    def own_options(self):
        return {key: value for key, value in self.options.items() if key not in self.remote.options()}

    def wipe(self):
        """What the death of the node does: store and stage are gone."""
        assert self.proc is None
        self.drop_stage()
        shutil.rmtree(self.store, ignore_errors=True)

    def remote_status(self):
        return self.status()["remote"]

    def quiet(self, writers):
        """A real mount needs no help to be consistent."""

    def whole(self):
        return contextlib.nullcontext()


class PlainRemote(rig.Plain):
    """A model of RemoteMount over a plain directory: each cut is one archive and a head that names it."""

    PERIOD = 0.3

    def __init__(self, root, binary=None, remote=None, **options):
        super().__init__(root, **options)
        self.remote, self.lock, self.thread, self.over = remote, threading.Lock(), None, threading.Event()
        self.fenced, self.count, self.cut, self.published, self.writers = False, 0, 0, None, None

    remote_status, elsewhere = RemoteMount.remote_status, RemoteMount.elsewhere

    def fresh(self, remote=None, **options):
        self.count += 1
        root = os.path.join(self.root, f"fresh-{self.count}")
        os.makedirs(root)
        return self.make(root, kind=PlainRemote, remote=remote or self.remote, **options)

    def start(self, ro=False, **options):
        os.makedirs(self.mnt, exist_ok=True)
        self.fenced, self.over = False, threading.Event()
        heads = self.remote.heads()
        self.cut = max(heads, default=0)
        if heads and not os.listdir(self.mnt):
            with tarfile.open(fileobj=io.BytesIO(self.remote.get(f"packs/{heads[self.cut].decode()}"))) as archive:
                archive.extractall(self.mnt, filter="fully_trusted")
        if not ro:
            self.publish(always=True)
            self.thread = threading.Thread(target=self.work, daemon=True)
            self.thread.start()
        return self

    mount = start

    def work(self):
        while not self.over.wait(self.PERIOD):
            with contextlib.suppress(FileNotFoundError):  # a test removes files while the directory is copied
                self.publish()

    def publish(self, always=False):
        with self.lock:
            data = self.archive()
            if self.fenced or data == self.published and not always:
                return
            name = os.urandom(8).hex()
            self.remote.put(f"packs/{name}", data)
            self.fenced = not self.remote.put_new(f"heads/{self.cut + 1:016x}", name.encode())
            self.cut += not self.fenced
            self.published = data

    def archive(self):
        with self.stopped(), io.BytesIO() as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                for name in sorted(os.listdir(self.mnt)):
                    archive.add(os.path.join(self.mnt, name), name)
            return file.getvalue()

    @contextlib.contextmanager
    def stopped(self):
        """The writers stand still while the directory is copied."""
        group = self.writers.proc.pid if self.writers and self.writers.proc.poll() is None else None
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(group, signal.SIGSTOP)
                time.sleep(0.02)
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                if group:
                    os.killpg(group, signal.SIGCONT)

    def quiet(self, writers):
        """These writers stand still while the directory is copied."""
        self.writers = writers

    def whole(self):
        """What is done inside is copied as a whole."""
        return self.lock

    def pause(self):
        self.lock.acquire()

    def go_on(self):
        self.lock.release()

    def kill9(self):
        self.over.set()
        if self.thread:
            self.thread.join(120)
            self.thread = None

    close = kill9

    def umount(self, drain=None):
        if drain:
            self.publish()
        self.kill9()

    def wipe(self):
        shutil.rmtree(self.mnt)

    def wait_remote(self, path=None, timeout=None):
        self.publish()

    def status(self):
        state = "fenced" if self.fenced else "ok"
        return {"remote": {"state": state, "error": "taken over by another" if self.fenced else ""}}
