# SPDX-License-Identifier: Apache-2.0
"""`cairn ls` and `cairn cp`: a remote, or a store, without mount and daemon."""
import json
import os
import random
import signal
import subprocess
import tempfile

import pytest

import rig

pytestmark = pytest.mark.needs_mount

SMALL = {"stage": "128M", "writeback_delay": "100ms"}


class Verbs:
    """The verbs on a source; what they leave behind is an error."""

    def __init__(self, mount, source, flags=(), directory=None):
        self.mount, self.source, self.flags, self.tmp = mount, source, list(flags), directory

    def run(self, verb, *args, ok=True, text=True):
        env = {**(self.mount.env or os.environ), "TMPDIR": self.tmp}
        done = subprocess.run(
            [self.mount.binary, verb, *self.flags, *args], capture_output=True, text=text, timeout=120, env=env
        )
        assert os.listdir(self.tmp) == []
        assert (done.returncode == 0) == ok, f"{verb} {args}: {done.returncode} {done.stderr}"
        return done

    def ls(self, path, *options, ok=True):
        return self.run("ls", *options, f"{self.source}:{path}", ok=ok)

    def cp(self, path, local, *options, ok=True):
        return self.run("cp", *options, f"{self.source}:{path}", local, ok=ok)

    def output(self, path, ok=True):
        """What `cairn cp ... -` writes, and its messages."""
        done = self.run("cp", f"{self.source}:{path}", "-", ok=ok, text=False)
        return done.stdout, done.stderr.decode()


def fill(root):
    """A tree with one of each."""
    run = os.path.join(root, "run")
    os.makedirs(os.path.join(run, "deep", "deeper"))
    os.makedirs(os.path.join(run, "empty"))
    dice = random.Random(7)
    rig.write_file(os.path.join(run, "large"), dice.randbytes(30 << 20))
    rig.write_file(os.path.join(run, "small"), b"hello\n")
    rig.write_file(os.path.join(run, "none"), b"")
    rig.write_file(os.path.join(run, "with: colons"), b"::")
    rig.write_file(os.path.join(run, "deep", "deeper", "twice"), dice.randbytes(2 << 20) * 2)
    for number in range(40):
        rig.write_file(os.path.join(run, "deep", f"part-{number}"), dice.randbytes(dice.randrange(100_000)))
    with open(os.path.join(run, "sparse"), "wb") as file:
        file.truncate(50 << 20)
        file.seek(20 << 20)
        file.write(b"x" * 5000)
    os.symlink("deep/deeper", os.path.join(run, "link"))
    os.symlink("../../etc/passwd", os.path.join(run, "away"))
    os.symlink("deep/deeper/twice", os.path.join(run, "blob"))
    os.link(os.path.join(run, "small"), os.path.join(run, "hard"))
    os.chmod(os.path.join(run, "small"), 0o640)
    os.chmod(os.path.join(run, "deep"), 0o750)
    for name, when in (("small", 10**9), ("large", 1_700_000_000_123_456_789), ("deep", 1_600_000_000 * 10**9)):
        os.utime(os.path.join(run, name), ns=(when, when))
    return run


@pytest.fixture(params=["remote", "store"])
def published(request, on_remote, remote, directory):
    """Verbs on a remote, or on the store of the same content, and the tree that was written (a copy)."""
    mount = on_remote(remote, **SMALL).mount()
    expected = os.path.join(directory, "expected")
    fill(mount.mnt)
    subprocess.run(["cp", "-a", os.path.join(mount.mnt, "run"), expected], check=True)
    mount.umount(drain="remote")
    tmp = tempfile.mkdtemp(dir=directory)
    source, flags = (mount.store, []) if request.param == "store" else (remote.url, remote.flags())
    verbs = Verbs(mount, source, flags, tmp)
    verbs.expected = expected
    return verbs


def same(one, other):
    rig.run("diff", "-r", "--no-dereference", one, other)
    for top, directories, names in os.walk(one):
        for name in directories + names:
            a = os.path.join(top, name)
            sa, sb = os.lstat(a), os.lstat(os.path.join(other, os.path.relpath(a, one)))
            assert (sa.st_mode, sa.st_size, sa.st_mtime_ns) == (sb.st_mode, sb.st_size, sb.st_mtime_ns), a


def test_ls(published):
    names = published.ls("/run").stdout.splitlines()
    assert names == sorted(os.listdir(published.expected))
    assert published.ls("run/").stdout.splitlines() == names
    assert published.ls("run/link/").stdout.splitlines() == ["twice"]
    assert published.ls("run/with: colons").stdout.splitlines() == ["run/with: colons"]
    assert published.ls("").stdout == "run\n"
    lines = published.ls("run", "-l").stdout.splitlines()
    small = next(line for line in lines if line.endswith(" small")).split()
    assert small[0] == "-rw-r-----" and small[1] == "2" and small[4] == "6"
    assert next(line for line in lines if " link" in line).endswith("link -> deep/deeper")
    deep = published.ls("/", "-R").stdout
    assert "/run/deep/deeper:\ntwice\n" in deep and "part-39" in deep


def test_cp_of_a_tree(published, directory):
    out = os.path.join(directory, "out")
    published.cp("run", out, "-r")
    same(published.expected, out)
    assert os.stat(os.path.join(out, "sparse")).st_blocks * 512 < 1 << 20
    os.makedirs(os.path.join(directory, "into"))
    published.cp("/run/deep", os.path.join(directory, "into"), "-r")
    same(os.path.join(published.expected, "deep"), os.path.join(directory, "into", "deep"))
    published.cp("/", os.path.join(directory, "all"), "-r")
    assert os.listdir(os.path.join(directory, "all")) == ["run"]
    published.cp("run", out, "-r")  # again, into what is there
    same(published.expected, os.path.join(out, "run"))


@pytest.mark.parametrize("published", ["store"], indirect=True)
def test_cp_where_a_file_cannot_be_without_a_name(published, directory):
    """Without /proc no file gets its first name at the end. Each has a temporary one meanwhile, and none is left."""
    rig.need_root()
    out = os.path.join(directory, "out")
    for target in (out, os.path.join(out, "run")):  # and again, into what is there
        copy = [published.mount.binary, "cp", "-r", f"{published.source}:run", out]
        rig.run("unshare", "-m", "sh", "-c", 'umount -l /proc && ! [ -e /proc/self ] && exec "$@"', "sh", *copy)
        same(published.expected, target)
    published.cp("run", out, "-r", ok=True)
    same(published.expected, os.path.join(out, "run"))


def deep_directories(top, count):
    """Descriptors of `top` and of directories within each other, whose path is longer than a path may be."""
    fds = [os.open(top, os.O_RDONLY)]
    for _ in range(count):
        fds.append(os.open("n" * 250, os.O_RDONLY, dir_fd=fds[-1]))
    return fds


def test_cp_of_paths_that_are_longer_than_one_may_be(on_remote, remote, directory):
    """Each directory gets its mode and time, however deep."""
    mount, depth = on_remote(remote, **SMALL).mount(), 40
    at = os.open(mount.mnt, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("n" * 250, dir_fd=at)
        at, above = os.open("n" * 250, os.O_RDONLY, dir_fd=at), at
        os.close(above)
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    for number, fd in reversed(list(enumerate(deep_directories(mount.mnt, depth)))):
        os.fchmod(fd, 0o700 + number)
        os.utime(fd, (number, 1_000_000 + number))
        os.close(fd)
    mount.umount(drain="remote")
    verbs = Verbs(mount, remote.url, remote.flags(), tempfile.mkdtemp(dir=directory))
    out = rig.mkdir(os.path.join(directory, "out"))
    verbs.cp("/", out, "-r")
    fds = deep_directories(out, depth)
    for number, fd in list(enumerate(fds))[1:]:
        info = os.fstat(fd)
        assert (info.st_mode & 0o777, int(info.st_mtime)) == (0o700 + number, 1_000_000 + number), number
    assert os.listdir(fds[-1]) == ["file"]
    for fd in fds:
        os.close(fd)


def test_cp_of_files(published, directory):
    target = os.path.join(directory, "file")
    published.cp("run/large", target)
    assert rig.read_file(target) == rig.read_file(os.path.join(published.expected, "large"))
    published.cp("run/small", target)  # takes its place
    assert rig.read_file(target) == b"hello\n" and os.stat(target).st_mode & 0o777 == 0o640
    published.cp("run/with: colons", target)
    assert rig.read_file(target) == b"::"
    into = os.path.join(directory, "into")
    os.makedirs(into)
    sources = [f"{published.source}:run/{name}" for name in ("small", "none", "link")]
    published.run("cp", *sources, into)
    assert sorted(os.listdir(into)) == ["link", "none", "small"] and os.path.islink(os.path.join(into, "link"))


def test_cp_to_standard_output(published):
    """The bytes of one file, and nothing else: holes are zeros, a link leads to its file."""
    for name in ("large", "small", "none", "sparse", "with: colons", "hard", "deep/deeper/twice", "link/twice"):
        assert published.output(f"run/{name}") == (rig.read_file(os.path.join(published.expected, name)), ""), name
    assert published.output("run/blob") == published.output("run/deep/deeper/twice")


def test_only_one_file_goes_to_standard_output(published):
    for path, word in (("run", "not a file"), ("run/link", "not a file"), ("run/away", "no such file"), ("run/nowhere", "no such file")):
        output, message = published.output(path, ok=False)
        assert output == b"" and word in message, path
    small = f"{published.source}:run/small"
    for words in (["-r", small], ["--partial", small], ["--json", small], [small, small]):
        done = published.run("cp", *words, "-", ok=False)
        assert (done.returncode, done.stdout) == (2, "") and "only one file" in done.stderr


@pytest.mark.parametrize("name", ["large", "sparse"])
def test_a_reader_that_leaves(published, name):
    """As `| head -c 10` does: an error, and nothing is left behind. The end of `sparse` is a hole."""
    env = {**published.mount.env, "TMPDIR": published.tmp}
    command = [published.mount.binary, "cp", *published.flags, f"{published.source}:run/{name}", "-"]
    size = 10 if name == "large" else 21 << 20
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(size) == rig.read_file(os.path.join(published.expected, name))[:size]
        process.stdout.close()
        assert b"standard output" in process.stderr.read()
    assert process.returncode == 1 and os.listdir(published.tmp) == []


def test_an_interrupt_ends_the_output(published):
    """Ctrl-C while the reader is slow: exit code 130, the beginning of the file, no temporary directory."""
    env = {**published.mount.env, "TMPDIR": published.tmp}
    command = [published.mount.binary, "cp", *published.flags, f"{published.source}:run/large", "-"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        output = process.stdout.read(100_000)
        process.send_signal(signal.SIGINT)
        output += process.stdout.read()
        assert process.stderr.read() == b"cairn cp: interrupted\n"
    assert process.returncode == 130 and os.listdir(published.tmp) == []
    assert len(output) < 30 << 20 and rig.read_file(os.path.join(published.expected, "large")).startswith(output)


@pytest.mark.parametrize("published", ["remote"], indirect=True)
@pytest.mark.parametrize("how", ["flipped", "missing"])
def test_standard_output_ends_before_damage(published, remote, how):
    """All that is before the first damaged byte, none after it, the object's name, exit code 1."""
    size = 30 << 20
    for name, length in remote.names("packs/").items():
        if length > 1 << 20 and how == "flipped":
            data = bytearray(remote.get(name))
            data[length // 2] ^= 1
            remote.put(name, bytes(data))
    if how == "missing":
        remote.delete(max(remote.names("packs/"), key=remote.names("packs/").get))
    output, message = published.output("run/large", ok=False)
    assert len(output) < size and rig.read_file(os.path.join(published.expected, "large")).startswith(output)
    assert "packs/" in message and f"ends after {len(output)} of {size} bytes" in message and message.count("\n") == 1
    assert how == "missing" or len(output) >= 1 << 20
    assert published.output("run/small") == (b"hello\n", "")


def test_standard_output_ends_where_bytes_have_no_place(on_remote, remote, directory):
    """A store whose copy was evicted: the hole before it is written, and so are bytes that NVMe has before, none of those behind."""
    mount = on_remote(remote, **SMALL).mount()
    hole, middle = (os.path.join(mount.mnt, name) for name in ("hole", "middle"))
    for path, begin in ((hole, 1 << 20), (middle, 0)):
        with open(path, "wb") as file:
            file.seek(begin)
            file.write(random.Random(path).randbytes(12 << 20))
    mount.wait_remote()
    assert mount.cairn("evict", hole, middle).returncode == 0
    new = random.Random(5).randbytes(4 << 20)
    with open(middle, "r+b") as file:
        file.write(new)
        file.seek(8 << 20)
        file.write(new[::-1])
    mount.umount()
    verbs = Verbs(mount, mount.store, directory=tempfile.mkdtemp(dir=directory))
    for path, size, expected in (("hole", 13 << 20, bytes(1 << 20)), ("middle", 12 << 20, new)):
        output, message = verbs.output(path, ok=False)
        assert output == expected and "in the remote alone" in message and f"after {len(expected)} of {size} bytes" in message


def test_a_file_of_a_mount_to_standard_output(on_remote, remote, directory):
    mount = on_remote(remote, **SMALL).mount()
    data = random.Random(4).randbytes(5 << 20)
    os.mkdir(os.path.join(mount.mnt, "step"))
    rig.write_file(os.path.join(mount.mnt, "step", "with: colon"), data)
    verbs = Verbs(mount, mount.mnt, directory=tempfile.mkdtemp(dir=directory))
    assert verbs.output("step/with: colon") == (data, "")
    done = verbs.run("cp", os.path.join(mount.mnt, "step", "with: colon"), "-", text=False)
    assert (done.stdout, done.stderr) == (data, b"")
    assert "not a file" in verbs.output("step", ok=False)[1]
    assert "No such file" in verbs.output("nowhere", ok=False)[1]


@pytest.mark.parametrize("published", ["remote"], indirect=True)
def test_cp_prints_json(published, directory, remote):
    out = os.path.join(directory, "out")
    done = json.loads(published.cp("run", out, "-r", "--json").stdout)
    files = sum(len(names) for _, _, names in os.walk(published.expected)) + 1  # a link to a directory is no file to os.walk()
    assert done == {"local": out, "complete": True, "files": files, "copied": files, "partial": 0, "bytes": done["bytes"], "problems": []}
    assert done["bytes"] > 30 << 20
    remote.delete(max(remote.names("packs/"), key=remote.names("packs/").get))
    failed = published.cp("run", out, "-r", "--json", ok=False)
    done = json.loads(failed.stdout)
    assert not done["complete"] and done["copied"] + len(done["problems"]) == done["files"] == files
    assert all("packs/" in problem["problem"] for problem in done["problems"])
    assert {problem["path"] for problem in done["problems"]} >= {os.path.join(out, "run", "large")}
    assert all(problem["path"] in failed.stderr for problem in done["problems"])


def test_what_is_refused(published, directory):
    out = os.path.join(directory, "out")
    assert published.ls("nowhere", ok=False).returncode == 1
    assert published.ls("run/away/", ok=False).returncode == 1
    assert "-r" in published.cp("run", out, ok=False).stderr
    assert published.run("cp", f"{published.source}:run/small", ok=False).returncode == 2
    assert published.run("cp", f"{published.source}:run/small", f"{published.source}:run/none", out, ok=False).returncode == 2
    assert published.run("ls", ok=False).returncode == 2
    assert published.run("ls", "/nowhere/at/all:x", ok=False).returncode == 2
    assert published.run("ls", "--wrong", f"{published.source}:", ok=False).returncode == 2
    assert not os.path.exists(out)


def test_a_mounted_store_is_left_alone(on_remote, remote, directory):
    mount = on_remote(remote, **SMALL).mount()
    rig.write_file(os.path.join(mount.mnt, "file"), b"1")
    verbs = Verbs(mount, mount.store, directory=tempfile.mkdtemp(dir=directory))
    done = verbs.ls("/", ok=False)
    assert done.returncode == 1 and mount.mnt in done.stderr
    mount.wait()
    mount.kill9()
    done = verbs.ls("/")
    assert done.stdout == "file\n" and "stage" in done.stderr
    mount.mount()  # the stage was left alone
    assert rig.read_file(os.path.join(mount.mnt, "file")) == b"1"


def test_an_empty_remote(on_remote, remote, directory):
    mount = on_remote(remote)
    verbs = Verbs(mount, remote.url, remote.flags(), tempfile.mkdtemp(dir=directory))
    done = verbs.ls("/", ok=False)
    assert done.returncode == 1 and remote.url in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("published", ["remote"], indirect=True)
def test_damage_makes_no_file(published, directory, remote):
    """What does not verify is said, has no name locally, and the rest is copied."""
    for name in remote.names("packs/"):
        if remote.names()[name] > 1 << 20:
            data = bytearray(remote.get(name))
            data[len(data) // 2] ^= 1
            remote.put(name, bytes(data))
    out = os.path.join(directory, "out")
    done = published.cp("run", out, "-r", ok=False)
    assert done.returncode == 1 and "damaged" in done.stderr
    assert not [name for _, _, names in os.walk(out) for name in names if ".cairn-" in name]
    for top, _, names in os.walk(out):
        for name in names:
            path = os.path.join(top, name)
            if not os.path.islink(path):
                assert rig.read_file(path) == rig.read_file(os.path.join(published.expected, os.path.relpath(path, out)))
    assert os.path.exists(os.path.join(out, "small"))


@pytest.mark.parametrize("published", ["remote"], indirect=True)
def test_an_interrupt_leaves_nothing(published, directory):
    """Ctrl-C: exit code 130, no half file, no temporary directory."""
    out = os.path.join(directory, "out")
    env = {**published.mount.env, "TMPDIR": published.tmp}
    command = [published.mount.binary, "cp", *published.flags, "-r", f"{published.source}:run", out]
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE)
    rig.poll(lambda: os.path.isdir(out) or process.poll() is not None, 20, "the copy to begin", 0.001)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=200)  # the end of all that write there: its helpers, too
    assert process.returncode in (0, 130)
    assert os.listdir(published.tmp) == []
    assert not [name for _, _, names in os.walk(out) for name in names if ".cairn-" in name]
