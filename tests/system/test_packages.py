# SPDX-License-Identifier: Apache-2.0
"""The lists of files of the Debian packages and of the RPM spec cover what meson installs (test_install): each file once, and nothing
else."""
import fnmatch
import glob
import os
import re

from sources import ROOT, read
from test_install import INSTALLED, PACKAGE

ALL = [(directory, name) for directory, names in {**INSTALLED, "python": ["cairnfs/" + name for name in PACKAGE]}.items() for name in names]
DEBIAN = {
    "bindir": "usr/bin",
    "mandir": "usr/share/man",
    "mounthelperdir": "usr/sbin",
    "systemdunitdir": "usr/lib/systemd/system",
    "includedir": "usr/include",
    "libdir": "usr/lib/x86_64-linux-gnu",
    "datadir": "usr/share",
    "python": "usr/lib/python3/dist-packages",
}
DEBIAN_REMOVES = {"usr/share/doc/cairnfs/LICENSE"}  # debian/rules: a link to that of the distribution takes its place
RPM = {
    "bindir": "%{_bindir}",
    "mandir": "%{_mandir}",
    "mounthelperdir": "%{_sbindir}",
    "systemdunitdir": "%{_unitdir}",
    "includedir": "%{_includedir}",
    "libdir": "%{_libdir}",
    "datadir": "%{_datadir}",
    "python": "%{python3_sitearch}",
}


def problems(paths, patterns):
    """What is in no package or in several, and patterns that stand for nothing. patterns: (package, pattern)."""
    used = set()
    for path in paths:
        packages = set()
        within = [path[:end] for end in (*(place.start() for place in re.finditer("/", path)), len(path))]
        for package, pattern in patterns:
            if any(fnmatch.fnmatchcase(part, pattern.rstrip("/")) and part.count("/") == pattern.rstrip("/").count("/") for part in within):
                packages.add(package)
                used.add((package, pattern))
        if len(packages) != 1:
            yield f"{path}: in {sorted(packages) or 'no package'}"
    yield from (f"{package}: {pattern} is not installed" for package, pattern in patterns if (package, pattern) not in used)


def debian_patterns():
    for path in sorted(glob.glob(os.path.join(ROOT, "debian", "*.install"))):
        for line in read(path).splitlines():
            yield os.path.basename(path)[: -len(".install")], line.split()[0]


def rpm_patterns():
    package = None
    for line in read("contrib/rpm/cairnfs.spec").splitlines():
        if line.startswith("%files"):
            package = line
        elif line.startswith("%changelog"):
            package = None
        elif package and line.startswith("%{"):
            yield package, line.replace("%{_docdir}", "%{_datadir}/doc")


def test_debian_packages_have_what_is_installed():
    paths = [f"{DEBIAN[directory]}/{name}" for directory, name in ALL]
    assert DEBIAN_REMOVES <= set(paths)
    assert list(problems([path for path in paths if path not in DEBIAN_REMOVES], list(debian_patterns()))) == []
    rules = read("debian/rules")
    assert all(os.path.basename(path) in rules and path in read("debian/cairnfs.links") for path in DEBIAN_REMOVES)
    described = set(re.findall(r"^Package: (\S+)$", read("debian/control"), re.MULTILINE))
    assert {package for package, _ in debian_patterns()} == described


def test_rpm_packages_have_what_is_installed():
    assert list(problems([f"{RPM[directory]}/{name}" for directory, name in ALL], list(rpm_patterns()))) == []


def test_symbols_are_those_of_the_header():
    """debian/libcairn0.symbols says of each function from which version on a program needs it."""
    header = set(re.findall(r"^(?:\w[\w \*]*[ \*])?(cairn_\w+)\(", read("include/cairn/cairn.h"), re.MULTILINE))
    assert len(header) > 20
    assert header == set(re.findall(r"^ (cairn_\w+)@CAIRN_0 ", read("debian/libcairn0.symbols"), re.MULTILINE))


def test_a_wrong_list_is_found():
    """The comparison itself can fail."""
    found = list(problems(["a/b", "a/c", "d"], [("one", "a/*"), ("two", "a/c"), ("two", "e")]))
    assert found == ["a/c: in ['one', 'two']", "d: in no package", "two: e is not installed"]
