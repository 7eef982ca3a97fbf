# SPDX-License-Identifier: Apache-2.0
"""mount-scripts/build-packages in a new installation of each distribution, and what it built in another one, which has nothing else."""
import glob
import os
import re
import shutil
import subprocess

import pytest

import rig
from rig import KIB
from sources import ROOT, read

SUITES = {"bookworm": "Debian", "trixie": "Debian", "noble": "Ubuntu"}
VERSION = re.search(r"^  version: '(.*)',$", read("meson.build"), re.MULTILINE)[1]
# A mount and a process namespace of its own: no mount and no daemon outlives the command.
INSIDE = rig.DROP_INHERITED + r"""
set -e
root=$1
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/shm"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
for device in null zero full random urandom tty fuse; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$root" sh -ec "$2"
"""
APT_OPTIONS = 'APT::Install-Recommends "false";\nAPT::Sandbox::User "root";\nDpkg::Use-Pty "false";\n'


class System:
    """A directory with an installation of a distribution."""

    def __init__(self, root):
        self.root = root

    def path(self, path):
        return self.root + path

    def run(self, program, timeout=3600):
        """Runs it in there with a shell; it must succeed. Returns its output."""
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", "-c", INSIDE]
        done = subprocess.run([*command, "bash", self.root, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{program}: exit code {done.returncode}\n{done.stdout[-6000:]}"
        return done.stdout

    def install(self, *names):
        return self.run("apt-get install -qq " + " ".join(names))

    def copy(self, root):
        rig.run("cp", "-a", "--reflink=auto", self.root, root)
        return System(root)


def archive_of(distribution):
    """Where apt of this machine gets that distribution from; None: nowhere."""
    command = ["apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages"]
    shown = subprocess.run(command, capture_output=True, text=True).stdout
    return next((line.split()[1] for line in shown.splitlines() if line.startswith(distribution + " ")), None)


def available_memory():
    return KIB * int(re.search(r"^MemAvailable: +(\d+) kB$", rig.read_text("/proc/meminfo"), re.MULTILINE)[1])


@pytest.fixture(params=SUITES)
def suite(request, full):
    rig.need_root("/dev/fuse")
    if request.param == "trixie" and not full:
        pytest.skip("skipped: it takes long; with --full")
    for tool in ("debootstrap", "git", "unshare"):
        if not shutil.which(tool):
            pytest.skip(f"skipped: {tool} is not installed")
    return request.param


@pytest.fixture
def new_system(request, suite, directory):
    """The smallest installation that has apt, from the archive that this machine has its own packages from."""
    archive = archive_of(SUITES[suite])
    if archive is None:
        pytest.skip(f"skipped: apt of this machine has no archive of {SUITES[suite]}")
    place = rig.mkdir(os.path.join(directory, "systems"))
    if available_memory() > 10 * rig.GIB:  # dpkg waits for a disk most of the time
        rig.run("mount", "-t", "tmpfs", "-o", "size=8G", "tmpfs", place)
    root, build = os.path.join(place, "new"), os.path.abspath(request.config.getoption("--build"))
    cache = os.path.join(build, "debootstrap", suite)
    os.makedirs(cache, exist_ok=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", f"--cache-dir={cache}", suite, root, archive], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0 and re.search("Failed getting release file|Couldn't download packages", done.stdout):
        pytest.skip(f"skipped: no {suite} in the archive of {SUITES[suite]}: {done.stdout.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    system = System(root)
    rig.write_file(system.path("/etc/apt/apt.conf.d/90test"), APT_OPTIONS)
    system.run("apt-get update -qq")
    return system


def built(new_system, kinds):
    """The packages, built where only the tools that docs/operations.md names and the build dependencies are."""
    builder = new_system.copy(os.path.join(os.path.dirname(new_system.root), "builder"))
    os.mkdir(builder.path("/src"))
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", builder.path("/src")], input=archive, check=True)
    builder.install("build-essential", "rpm")
    builder.run("cd /src && apt-get build-dep -qq .")
    options = os.environ.get("DEB_BUILD_OPTIONS", "")  # noopt, for a quick look
    builder.run(f"cd /src && DEB_BUILD_OPTIONS='{options}' mount-scripts/build-packages -o /packages {kinds}")
    shutil.move(builder.path("/packages"), new_system.path("/packages"))
    shutil.rmtree(builder.root)
    return [os.path.basename(path) for path in glob.glob(new_system.path("/packages/*"))]


def program_of(name):
    """A test of the installed packages (debian/tests), as a command in there."""
    return f"cat >/tmp/program <<'END'\n{read('debian/tests/' + name)}END\nsh /tmp/program"


def needed_by(name):
    """What debian/tests/control has that test depend on, without our own packages."""
    stanza = next(part for part in read("debian/tests/control").split("\n\n") if f"Tests: {name}\n" in part)
    depends = re.search(r"^Depends: (.*)$", stanza, re.MULTILINE)[1].split(", ")
    return [names.split(" | ")[-1] for names in depends if "cairn" not in names]


def check_debs(system, packages):
    for name in ("cairnfs", "libcairn0", "libcairn-dev", "python3-cairnfs"):
        assert any(re.fullmatch(rf"{name}_{VERSION}_\w+\.deb", package) for package in packages), (name, packages)
    system.install("/packages/cairnfs_*.deb")
    assert system.run("cairn version").split()[1] == VERSION
    assert "read\n" in system.run(program_of("mount"))
    system.install("/packages/libcairn*_*.deb", "/packages/python3-cairnfs_*.deb", *needed_by("libraries"))
    system.run(program_of("libraries"))
    system.run("apt-get purge -qq cairnfs libcairn0 libcairn-dev python3-cairnfs")
    assert system.run("find / -xdev -path /packages -prune -o -path /proc -prune -o -name '*cairn*' -not -name Pitcairn -print") == ""


def check_rpms(system, packages):
    """Their files work, with the libraries that the packages of Debian brought along: the database of rpm has none of them."""
    rpms = [package for package in packages if package.endswith(".rpm")]
    assert len(rpms) == 4 and all(VERSION in package for package in rpms), packages
    system.install("rpm")
    missing = system.run("for name in $(rpm -qpR /packages/*.rpm | grep -o '^lib[^(]*\\.so[^(]*' | grep -v ^libcairn | sort -u); do "
                         "ldconfig -p | grep -qF \"$name\" || echo $name; done")
    assert missing == ""
    system.run("rpm -i --nodeps /packages/*.rpm && ldconfig && rpm -V --nodeps $(rpm -qa | grep cairn)")
    assert "read\n" in system.run(program_of("mount"))
    system.run(program_of("libraries").replace("/usr/share/doc/libcairn-dev/examples", "/usr/share/doc/cairnfs/examples"))
    system.run("rpm -e --nodeps $(rpm -qa | grep cairn)")
    assert system.run("find /usr /etc -name '*cairn*' -not -name Pitcairn -not -type d") == ""


def check_wheel(system, packages):
    """Its library loads; tests/lane/test_wheel.py uses it with torch."""
    [wheel] = [package for package in packages if package.endswith(".whl")]
    assert wheel.startswith(f"cairnfs-{VERSION}-py3-none-")
    system.run(f"python3 -m zipfile -e /packages/{wheel} /tmp/wheel && "
               "python3 -c 'import ctypes; ctypes.CDLL(\"/tmp/wheel/cairnfs/libcairn.so.0\").cairn_lane_open' && rm -r /tmp/wheel")


@pytest.mark.timeout(600)
def test_a_release_in_a_new_system(suite, new_system):
    """Built by one command from the last commit; installed, used and removed where there is nothing else. On the oldest of them .rpm
    and wheel, too."""
    everything = suite == "bookworm"
    packages = built(new_system, "" if everything else "deb")
    assert {f"cairnfs-{VERSION}.tar.gz", "SHA256SUMS"} <= set(packages)
    new_system.run("cd /packages && sha256sum --quiet -c SHA256SUMS && test $(wc -l <SHA256SUMS) = $(ls | grep -c cairn)")
    check_debs(new_system, packages)
    if everything:
        check_wheel(new_system, packages)
        check_rpms(new_system, packages)
