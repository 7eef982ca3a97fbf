# SPDX-License-Identifier: Apache-2.0
"""The Python package of this tree over the library of the build; each test leaves nothing under way."""
import contextlib
import functools
import os
import sys

import pytest

import rig
from preloaded import Preloaded
from ranks import Job

# install() asks each mount of the machine, and those of tests beside this one may have lost a node.
ALONE = {"CAIRN_SETTLE_WAIT": "0"}
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")


def library_of(config):
    return os.path.abspath(os.path.join(config.getoption("--build"), "src", "client", "libcairn.so.0"))


def environment(config):
    """For programs that a test runs: the package and the library of this tree."""
    path = os.pathsep.join([os.path.abspath(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "CAIRN_LIBRARY": library_of(config), "PYTHONFAULTHANDLER": "1", **ALONE}


def pytest_collection_modifyitems(config, items):
    here = os.path.dirname(os.path.abspath(__file__))
    why = None
    if config.getoption("--sanitize"):
        why = "a sanitizer's library cannot be loaded into Python: tests/client covers it"
    elif not os.path.exists(library_of(config)):
        why = f"{library_of(config)} is not built"
    for item in items:
        if why and str(item.path).startswith(here):
            item.add_marker(pytest.mark.skip(reason=f"skipped: {why}"))
    if config.getoption("--full") and not why:
        with contextlib.suppress(ImportError):
            import setuptools  # noqa: F401: torch's compiler of C++ refuses a distutils that was loaded before it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    finally:
        if "stall" in item.funcargs:
            item.funcargs["stall"].go()


@pytest.fixture(scope="session", autouse=True)
def package(request):
    os.environ["CAIRN_LIBRARY"] = library_of(request.config)
    if PACKAGE not in sys.path:
        sys.path.insert(0, os.path.abspath(PACKAGE))


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Here only: tests of nodes, which the same process may run afterwards, are about that wait."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def build(request):
    """The directory whose library tests/lane/library.py loads."""
    return os.path.abspath(request.config.getoption("--build"))


@pytest.fixture
def lane(package):
    """The module cairnfs, with nothing under way before and after the test."""
    import cairnfs
    from cairnfs import _process, _track

    yield cairnfs
    cairnfs.uninstall()
    process = _process.current()
    rig.poll(lambda: process.look() or not process.pending, 30, "the end of the test's saves")
    process.saved.clear()
    process.untold.clear()
    process.failed.clear()
    process.unraised.clear()
    process.captured = False
    _track._stepped.clear()


@pytest.fixture
def ways(lane, monkeypatch):
    """Notes which way a load goes: "late", "ahead", "torch"."""
    from cairnfs import _load

    noted = []
    for name, way in (("load_late", "late"), ("load_ahead", "ahead"), ("plain_load", "torch")):
        def note(*args, original=getattr(_load, name), way=way, **kwargs):
            noted.append(way)
            return original(*args, **kwargs)

        monkeypatch.setattr(_load, name, note)
    return noted


@pytest.fixture(scope="session")
def mount_factory(mount_factory):
    """With room for a save of Training that does not wait for writeback."""
    return functools.partial(mount_factory, stage="128M")


@pytest.fixture(scope="session")
def programs(request):
    return environment(request.config)


@pytest.fixture(scope="session")
def python(programs):
    """A Python that has imported torch, and what an optimizer imports: python.run(program, arguments)."""
    found = Preloaded("import torch, torch._dynamo", programs)
    yield found
    found.close()


class Stall:
    """A mount whose daemon stands still from a moment on: what is copied then is held in the middle."""

    def __init__(self, mount):
        self.mount = mount

    def save(self, lane, state, path, **options):
        """A lazy save whose copy is held in the middle."""
        save = lane.save(state, path, **options)
        self.stop()
        assert not save.copied(), "the copy was done before the daemon stood still"
        return save

    def stop(self):
        self.mount.pause()

    def go(self):
        """Also at the end of a test that fails, before anything looks for why: a process that begins or ends would wait for the daemon."""
        if self.mount.proc:
            self.mount.go_on()


@pytest.fixture
def stall(request, cairn, lane):
    """Asks for a mount; the daemon goes on at the end of the test."""
    cairn.mount(stage="1G")
    found = Stall(cairn)
    request.addfinalizer(found.go)
    return found


@pytest.fixture
def job(cairn, directory, python):
    """Two ranks on a mount."""
    cairn.mount(stage="512M")
    return Job(cairn.mnt, directory, python)
