# SPDX-License-Identifier: Apache-2.0
"""meson install puts all in place, and ninja uninstall takes exactly that away again."""
import fcntl
import functools
import json
import os
import re
import shutil
import stat
import subprocess

import pytest

import rig

pytestmark = pytest.mark.needs_mount

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")

# In the order of the directories' names of meson.
INSTALLED = {
    "bindir": ["cairn"],
    "mandir": [f"man{name.split('.')[-1]}/{name}"
               for name in (name.removesuffix(".in") for name in os.listdir(ROOT + "/docs/man")) if name[-1].isdigit()] + ["man3/cairn.3"],
    "mounthelperdir": ["mount.cairnfs", "mount.fuse.cairnfs", "umount.cairnfs", "umount.fuse.cairnfs"],
    "systemdunitdir": ["cairnfs@.service"],
    "includedir": ["cairn/cairn.h"],
    "libdir": ["libcairn.so", "libcairn.so.0", "pkgconfig/cairn.pc"],
    "datadir": [
        "bash-completion/completions/cairn",
        "zsh/site-functions/_cairn",
        "fish/vendor_completions.d/cairn.fish",
        *("doc/cairnfs/examples/" + os.path.relpath(os.path.join(top, name), ROOT + "/contrib")
          for top, _, names in os.walk(ROOT + "/contrib") for name in names),
        *("doc/cairnfs/" + name
          for name in ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/save.c",
                       *sorted("contents.md" if name == "README.md" else name
                               for name in os.listdir(ROOT + "/docs") if name.endswith(".md")),
                       *(f"{part}/{name}" for part in ("getting-started", "notes", "tasks")
                         for name in sorted(os.listdir(f"{ROOT}/docs/{part}")))]),
    ],
}

PACKAGE = ["_place.py", *(name for name in os.listdir(ROOT + "/python/cairnfs") if name.endswith((".py", ".typed")))]


class Build:
    """The build directory, one test at a time; what it remembers of an installation of the user's is given back."""

    def __init__(self, directory):
        self.directory = directory
        self.log = os.path.join(directory, "meson-logs", "install-log.txt")
        self.lock = open(os.path.join(directory, "install.lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.before = rig.read_file(self.log) if os.path.exists(self.log) else None
        shown = subprocess.run(["meson", "introspect", "--buildoptions", directory], capture_output=True, text=True, timeout=60, check=True)
        self.options = {option["name"]: option["value"] for option in json.loads(shown.stdout)}
        self.options["systemdunitdir"] = self.options["systemdunitdir"] or "lib/systemd/system"

    def close(self):
        if self.before is not None:
            rig.write_file(self.log, self.before)
        elif os.path.exists(self.log):
            os.unlink(self.log)
        self.lock.close()

    def path(self, directory, name=""):
        return os.path.join(self.options["prefix"], self.options[directory], name)

    def installed(self):
        package = [os.path.join(self.python_directory, "cairnfs", name) for name in PACKAGE]
        return sorted([self.path(directory, name) for directory, names in INSTALLED.items() for name in names] + package)

    @functools.cached_property
    def python_directory(self):
        """Where the Python that meson found keeps its modules, as meson says it."""
        shown = subprocess.run(["meson", "introspect", "--installed", self.directory], capture_output=True, text=True, timeout=60,
                               check=True)
        return next(os.path.dirname(os.path.dirname(path))
                    for path in json.loads(shown.stdout).values() if path.endswith("/cairnfs/__init__.py"))


@pytest.fixture
def build(request):
    if not shutil.which("meson"):
        pytest.skip("skipped: meson is not installed")
    made = Build(os.path.abspath(request.config.getoption("--build")))
    request.addfinalizer(made.close)
    return made


def files_below(root):
    return sorted("/" + os.path.relpath(os.path.join(top, name), root) for top, _, names in os.walk(root) for name in names)


def dead_links(top):
    """Links between the pages there that lead nowhere."""
    pages = [path for path in files_below(top) if path.endswith(".md")]
    links = [(page, link) for page in pages
             for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", rig.read_file(top + page).decode())]
    assert len(links) > 30
    return [(page, link) for page, link in links if not os.path.exists(os.path.join(os.path.dirname(top + page), link))]


def test_install_and_uninstall_below_destdir(build, directory, binary):
    """Exactly the list; modes; links and paths that hold where it will be used; and nothing is left."""
    top = os.path.join(directory, "top")
    subprocess.run(["meson", "install", "-C", build.directory, "--no-rebuild", "--destdir", top], check=True, capture_output=True,
                   timeout=300)
    assert files_below(top) == build.installed()
    cairn = build.path("bindir", "cairn")
    assert rig.read_file(top + cairn) == rig.read_file(binary) and os.access(top + cairn, os.X_OK)
    for name in INSTALLED["mounthelperdir"]:
        assert os.readlink(top + build.path("mounthelperdir", name)) == cairn
    for path in build.installed():
        info = os.lstat(top + path)
        assert stat.S_ISLNK(info.st_mode) or info.st_mode & 0o022 == 0, path
    assert dead_links(top + build.path("datadir", "doc/cairnfs")) == []
    for script in ("prolog", "epilog"):
        assert os.access(top + build.path("datadir", "doc/cairnfs/examples/slurm/" + script), os.X_OK)
    unit = rig.read_file(top + build.path("systemdunitdir", "cairnfs@.service")).decode()
    assert (f"ExecStart={cairn} mount -f " in unit and f"EnvironmentFile={build.path('sysconfdir')}cairnfs%f.conf" in unit
            and "@" not in unit.replace("cairnfs@mnt-ckpt", ""))
    for shell in ("bash", "zsh", "fish"):
        shown = subprocess.run([binary, "completion", shell], capture_output=True, timeout=300).stdout
        path = next(path for path in build.installed() if f"{shell}" in path and "completion" in path or f"/{shell}/" in path)
        assert rig.read_file(top + path) == shown
    rig.write_file(top + build.path("datadir", "doc/cairnfs/of the user"), b"stays")
    subprocess.run(["ninja", "-C", build.directory, "uninstall"], check=True, capture_output=True, timeout=300)
    assert files_below(top) == [build.path("datadir", "doc/cairnfs/of the user")]


@pytest.mark.timeout(240)
def test_a_machine_with_it(build, machine):
    """Installed for real, in a namespace: mount(8), shells, man and systemd find it; uninstalled, the machine is as before and the
    store is whole."""
    tops = ("/usr/", "/etc/", "/sbin/")
    if not all(path.startswith(tops) for path in build.installed()):
        pytest.skip("skipped: the prefix of this build is not below /usr")
    before = changed(machine)
    machine.run("meson", "install", "-C", build.directory, "--no-rebuild")
    use(build, machine)
    machine.run("ninja", "-C", build.directory, "uninstall")
    assert changed(machine) == before
    assert "unknown filesystem type" in machine.run("mount", "-t", "cairnfs", machine.store, machine.mnt, code=32).stderr
    done = machine.run("cairn-under-test", "cp", machine.store + ":file", machine.root + "/copy")
    assert rig.read_file(machine.path(machine.root + "/copy")) == b"content\n", done


def changed(machine):
    """What is in /usr and /etc beside, or instead of, what is really there."""
    return [path for top in ("usr", "etc") for path in files_below(machine.path(f"{machine.root}/{top}"))]


def use_library(build, machine):
    """A C program finds the library as others are found, by pkg-config."""
    source = build.path("datadir", "doc/cairnfs/examples/save.c")
    machine.shell(f"PKG_CONFIG_LIBDIR={build.path('libdir', 'pkgconfig')} pkg-config --cflags --libs cairn")  # where no other library's is
    machine.shell(f"cc -o {machine.root}/save {source} $(pkg-config --cflags --libs cairn)")
    machine.shell(f"LD_LIBRARY_PATH=$(pkg-config --variable=libdir cairn) {machine.root}/save {machine.mnt} 2")
    assert machine.shell(f"cat {machine.mnt}/latest").stdout == "step2.zip"
    machine.run("python3", "-m", "zipfile", "-t", f"{machine.mnt}/step2.zip")


def use(build, machine):
    options = f"stage_dir={machine.stage_dir},stage=64M,_netdev"
    machine.run("mount", "-t", "cairnfs", machine.store, machine.mnt, "-o", options)
    machine.shell(f"echo content >{machine.mnt}/file; PATH={build.path('bindir')}:$PATH; cairn wait {machine.mnt}/file; cairn status {machine.mnt}")
    use_library(build, machine)
    machine.run("umount", machine.mnt)
    assert os.listdir(machine.stage_dir) == []
    if shutil.which("man"):
        for page in ("cairn", "mount.cairnfs", "cairn-format"):
            assert page in machine.run("man", "-M", build.path("mandir"), "-w", page).stdout
    if shutil.which("systemd-analyze"):
        unit = build.path("systemdunitdir", "cairnfs@.service")
        done = machine.run("systemd-analyze", "verify", "--man=no", unit.replace("@.", "@mnt-ckpt."), code=None)
        assert done.returncode == 0 and "cairnfs" not in done.stderr, done


def test_a_build_without_criterion_says_so(directory):
    """It has no unit tests: meson says that twice, so that a green build is not taken for a tested one."""
    if not shutil.which("meson"):
        pytest.skip("skipped: meson is not installed")
    tool = os.path.join(directory, "pkg-config")
    rig.write_file(tool, f'#!/bin/sh\ncase "$*" in *criterion*) exit 1 ;; esac\nexec {shutil.which("pkg-config")} "$@"\n')
    os.chmod(tool, 0o755)
    done = subprocess.run(["meson", "setup", os.path.join(directory, "build"), ROOT], env={**os.environ, "PKG_CONFIG": tool},
                          capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert "this build has NO UNIT TESTS" in done.stdout and re.search(r"unit tests *: NONE", done.stdout), done.stdout[-3000:]
