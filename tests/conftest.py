# SPDX-License-Identifier: Apache-2.0
"""pytest: options, the `cairn` fixture, the guard against hangs."""
import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import job
import remote as remotes
import rig
import slices
import successor
import turns
import watchdog

HERE = os.path.dirname(os.path.abspath(__file__))
END = float(os.environ.get("CAIRN_TESTS_END", 60))  # seconds for the end of a test process
# Directories and files with tests that meet reduced contents by chance.
CAMPAIGNS = ("crash", "model", "test_gc.py", "test_snapshots.py", "test_two_writers.py")


def pytest_addoption(parser):
    group = parser.getgroup("cairnfs")
    group.addoption("--full", action="store_true", help="every campaign at its full count")
    group.addoption("--turns", action="store_true", help="of tests that take long, those whose turn it is by the seed (turns.py)")
    group.addoption("--seed", type=int, default=None, help="seed of all random choices (default: of the commit; any with --full)")
    group.addoption("--build", default=os.path.join(HERE, "..", "build"), help="directory of the cairn binary")
    group.addoption("--plain", action="store_true", help="try the tests themselves on a plain directory")
    group.addoption("--sanitize", action="store_true", help="the binary is a sanitizer build: no limits of time or memory")
    group.addoption("--reduce", default=None, help="mount with this reduce= where a test does not say; contents are then such as can be "
                    "reduced (default: dense in every third test of crashes, of the model, and of gc, snapshots and two writers of a remote)")
    group.addoption("--reports", default=None, help="directory for measured figures (default: BUILD/reports)")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_mount: means nothing on a plain directory")
    config.addinivalue_line("markers", "timeout(seconds): a quarter of the limit for one test, which is enough on a quiet machine (times 10 with --full, 3 with --sanitize)")
    config.addinivalue_line("markers", "together: its cases share what is built for them, and have their turn in one commit")
    config.addinivalue_line("markers", "noise: right for contents that nothing makes smaller, whatever --reduce says")
    config.addinivalue_line("markers", "always_s3: runs on S3 too, whatever the seed says")
    config.addinivalue_line("markers", "alone: measures time, so nothing may run beside it")
    config.addinivalue_line("markers", "paced: measures time, and keeps to a rate far below the machine's: beside others that do, and nothing else")
    config.addinivalue_line("markers", "alone_with_full: measures time with --full only: `alone` there")
    config.addinivalue_line("markers", "pieces(count): with --full so many tests with a part of the campaign each, which may run at once")
    config.cairn_seed = seed_of(config)
    if not config.getoption("--reports"):
        config.option.reports = os.path.join(config.getoption("--build"), "reports")
    config.cairn_mounts, config.cairn_reports = [], False
    on_alarm(signal.SIG_IGN)
    config.cairn_stacks = tempfile.NamedTemporaryFile(prefix="cairn-stacks-")
    command = [sys.executable, os.path.join(HERE, "watchdog.py"), config.cairn_stacks.name]
    config.cairn_watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
    os.environ[watchdog.MARK] = str(os.getpid())


def pytest_generate_tests(metafunc):
    """A campaign takes the fixture `piece`: by default it is one test."""
    if "piece" in metafunc.fixturenames:
        count = metafunc.definition.get_closest_marker("pieces").args[0] if metafunc.config.getoption("--full") else 1
        pieces = [Piece(number, count) for number in range(count)]
        metafunc.parametrize("piece", pieces, ids=[f"{piece.number + 1}of{count}" for piece in pieces])


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if config.getoption("--full") and item.get_closest_marker("alone_with_full"):
            item.add_marker("alone")
    result = yield  # here `-m` chooses
    if config.getoption("--turns"):
        items[:], others = turns.choose(items, config.cairn_seed)
        config.hook.pytest_deselected(items=others)
    if hasattr(config, "workerinput"):
        items[:] = slices.long_ones_first(items, config.workerinput["workercount"])
    return result


def pytest_collection_finish():
    """What was imported and collected stays: no search for garbage looks at it again."""
    gc.freeze()


class Piece:
    """One of `count` parts of a campaign. Its choices differ from those of the others, as the names of the tests do (fixture rng)."""

    def __init__(self, number, count):
        self.number, self.count = number, count

    def share(self, total):
        """How much of `total` it does; all pieces together do all of it."""
        return total // self.count + (self.number < total % self.count)

    def part(self, items):
        return items[self.number :: self.count]


def seed_of(config):
    """The same in all processes that share a run (pytest-xdist)."""
    if hasattr(config, "workerinput"):
        return config.workerinput["cairn_seed"]
    given = config.getoption("--seed")
    if given is None and not config.getoption("--full"):
        given = seed_of_commit()
    return random.SystemRandom().randrange(1 << 31) if given is None else given


def seed_of_commit():
    """So that a default run can be repeated, and differs from commit to commit. None: this is no working tree of git."""
    done = subprocess.run(["git", "-C", HERE, "rev-parse", "HEAD"], capture_output=True, text=True)
    return int(done.stdout[:7], 16) if done.returncode == 0 else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    node.workerinput["cairn_seed"] = node.config.cairn_seed


def pytest_unconfigure(config):
    """The end of this process, which closes the watchdog's standard input, is guarded, too: it waits for threads."""
    arm(config, END)


def pytest_report_header(config):
    return f"cairnfs: seed {config.cairn_seed} (repeat with --seed {config.cairn_seed})"


def reason_to_skip(config, item):
    if config.getoption("--plain"):
        return "needs the mount" if item.get_closest_marker("needs_mount") else None
    if "mount_factory" not in item.fixturenames:
        return None
    if os.geteuid() != 0:
        return "needs root"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    return None


def pytest_runtest_setup(item):
    why = reason_to_skip(item.config, item)
    if why:
        pytest.skip(f"skipped: {why}")


class Hang(Exception):
    pass


def raise_hang(config):
    if config.cairn_reports:  # the test has ended
        return
    with open(config.cairn_stacks.name) as file:
        raise Hang(f"the test took too long; the daemons stood in\n{file.read()}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    config = item.config
    seconds = rig.PATIENCE * slices.limit_of(item)
    for option in ("--full", "--sanitize"):
        seconds *= (10 if option == "--full" else 3) if config.getoption(option) else 1
    on_alarm(lambda *_: raise_hang(config))
    arm(config, seconds)
    try:
        return (yield)
    finally:
        tell(config, "off")
        config.cairn_mounts[:] = [mount for mount in config.cairn_mounts if mount.pids()]
        on_alarm(signal.SIG_IGN)


def on_alarm(handler):
    """The handler is called behind a report of all stacks."""
    faulthandler.unregister(signal.SIGALRM)
    signal.signal(signal.SIGALRM, handler)
    faulthandler.register(signal.SIGALRM, file=sys.__stderr__, all_threads=True, chain=True)


def arm(config, seconds):
    tell(config, f"arm {seconds} {time.clock_gettime(time.CLOCK_BOOTTIME)}")


def tell(config, line):
    config.cairn_watchdog.stdin.write(line.encode() + b"\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    item.config.cairn_reports = True
    report = yield
    if report.failed:
        reduce = os.environ.get(rig.REDUCE)
        report.sections.append(("seed", f"--seed {item.config.cairn_seed}{f' --reduce {reduce}' if reduce else ''}"))
        for mount in item.config.cairn_mounts:
            for pid in mount.pids():
                report.sections.append((f"where daemon {pid} stands", watchdog.in_short(pid, watchdog.backtrace(pid))))
            if mount.log():
                report.sections.append((f"log of the daemon at {mount.mnt!a}", mount.log()[-8000:]))
    item.config.cairn_reports = False
    return report


@pytest.fixture(scope="session")
def run_directory(tmp_path_factory):
    """A directory of all processes of this test run."""
    own = tmp_path_factory.getbasetemp()
    return str(own.parent if "PYTEST_XDIST_WORKER" in os.environ else own)


@pytest.fixture(scope="session")
def reference(run_directory):
    """What an undisturbed run of the main job says."""
    return job.Reference(os.path.join(run_directory, "job"))


@pytest.fixture(scope="session")
def seed(request):
    return request.config.cairn_seed


@pytest.fixture
def rng(request, seed):
    """Random choices of one test: the same for the same seed, whatever else runs."""
    return rig.Dice(f"{seed} {request.node.name}")


@pytest.fixture(autouse=True)
def reduction(request, seed, monkeypatch):
    """Says to this test, and to the processes that it starts, how mounts reduce and what contents are."""
    word = request.config.getoption("--reduce")
    if word is None and set(CAMPAIGNS) & set(request.path.parts) and random.Random(f"{seed} {request.node.nodeid}").random() < 1 / 3:
        word = "dense"
    if word and not request.node.get_closest_marker("noise"):
        monkeypatch.setenv(rig.REDUCE, word)


@pytest.fixture(scope="session")
def full(request):
    return request.config.getoption("--full")


@pytest.fixture(scope="session")
def plain(request):
    return request.config.getoption("--plain")


@pytest.fixture(scope="session")
def sanitized(request):
    return request.config.getoption("--sanitize")


@pytest.fixture(scope="session")
def binary(request):
    if request.config.getoption("--plain"):
        return None
    build = request.config.getoption("--build")
    path = rig.find_binary(build)
    if path is None:
        pytest.fail(f"no cairn binary in {build}: build first, or name the directory with --build", pytrace=False)
    return path


@pytest.fixture
def report(request):
    """report(name, figures): keep measured figures as BUILD/reports/NAME.json."""

    def write(name, figures):
        directory = request.config.getoption("--reports")
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, name + ".json"), "w") as file:
            json.dump(figures, file, indent=1)
        print(name, json.dumps(figures))

    return write


def make_directory(finish, base=None):
    directory = tempfile.mkdtemp(prefix="cairn-test-", dir=base)

    def remove():
        rig.unmount_below(directory)
        shutil.rmtree(directory, ignore_errors=True)

    finish(remove)
    return directory


@pytest.fixture
def directory(request):
    """An empty directory outside the mount, on the disk."""
    return make_directory(request.addfinalizer)


@pytest.fixture
def shm_directory(request):
    """An empty directory in memory: histories live here, apart from the store's filesystem."""
    return make_directory(request.addfinalizer, "/dev/shm")


def watch_pids(config):
    pids = [str(pid) for mount in config.cairn_mounts for pid in mount.pids()]
    tell(config, "pids " + " ".join(pids))


def watched(config, kind):
    """A kind of mount whose daemon the watchdog knows."""

    class Watched(kind):
        def start(self, **options):
            result = super().start(**options)
            watch_pids(config)
            return result

        def reap(self, *args, **kwargs):
            result = super().reap(*args, **kwargs)
            watch_pids(config)
            return result

    return Watched


@pytest.fixture(scope="session")
def mount_factory(request, binary):
    """mount_factory(root, **options) makes a Mount, or a Plain with --plain; `kind` asks for another. `request`: of who closes it."""
    config = request.config
    usual = rig.Plain if config.getoption("--plain") else rig.Mount

    def make(root, kind=usual, request=None, **options):
        mount = watched(config, kind)(root, binary, **options)
        mount.make = make
        config.cairn_mounts.append(mount)
        if request:
            request.addfinalizer(mount.close)
        return mount

    return make


@pytest.fixture
def kept(request, mount_factory, directory):
    """A private store whose mount outlives its daemon, not yet mounted."""
    return mount_factory(directory, kind=successor.Kept, successor="on", crash_window=0, request=request)


@pytest.fixture(scope="session")
def rgw(request, run_directory):
    """A real RGW, or the reason to skip."""
    server = remotes.Rgw()
    why = server.missing()
    if why:
        pytest.skip(f"skipped: no Ceph RGW: {why}")
    request.addfinalizer(server.stop)
    return server.start(run_directory)


@pytest.fixture
def s3(request):
    made = remotes.S3Remote(request.getfixturevalue("rgw"))
    yield made
    made.wipe()
    made.rgw.reclaim()


@pytest.fixture(params=["dir", "s3"])
def remote(request, directory, seed, full):
    """An empty remote of each kind. S3 has its turn: by turns.py, or, where that chose none, here."""
    if request.param == "s3":
        if not (full or request.config.getoption("--turns") or turns.has_turn(request.node, seed, {})):
            pytest.skip("skipped: on S3 with --full, or with another seed")
        return request.getfixturevalue("s3")
    return remotes.DirRemote(os.path.join(directory, "remotes"))


@pytest.fixture
def on_remote(request, mount_factory, directory, plain):
    """on_remote(remote, **options): a private store on a remote (by default one in a directory), not yet mounted. It and what it makes are
    closed at the end."""
    usual = remotes.PlainRemote if plain else remotes.RemoteMount

    def build(root, kind=usual, **options):
        mount = mount_factory(root, kind=kind, **options)
        mount.make = build
        request.addfinalizer(mount.close)
        return mount

    def make(remote=None, **options):
        remote = remote or remotes.DirRemote(os.path.join(directory, "remotes"))
        return build(tempfile.mkdtemp(prefix="node-", dir=directory), remote=remote, **options)

    return make


@pytest.fixture
def clock_library(request, sanitized):
    """What wall_clock.py preloads."""
    path = os.path.abspath(os.path.join(request.config.getoption("--build"), "tests", "faults", "libfaultclock.so"))
    if sanitized or not os.path.exists(path):
        pytest.skip("skipped: a sanitizer cannot be preloaded beside the clock" if sanitized else "skipped: the tests were not built")
    return path


@pytest.fixture
def cairn(request, mount_factory, directory):
    """A private store with its mountpoint, not yet mounted."""
    return mount_factory(directory, request=request)


@pytest.fixture
def mnt(cairn):
    """A mounted private store: the path of the mountpoint."""
    cairn.mount()
    return cairn.mnt
