# SPDX-License-Identifier: Apache-2.0
"""One version, wherever a release names it; the licence, too."""
import os
import re
import subprocess
import sys

from sources import ROOT, read

PLACES = {
    "meson.build": r"^  version: '(.*)',$",
    "python/cairnfs/__init__.py": r'^__version__ = "(.*)"$',
    "CHANGELOG.md": r"^## (\d.*)$",
    "debian/changelog": r"^cairnfs \((.*?)\)",
    "contrib/rpm/cairnfs.spec": r"^Version: +(\S+)$",
    "contrib/kubernetes/cairnfs.yaml": r"image: cairnfs:(\S+)$",
}
LICENCES = {"meson.build": "license: 'Apache-2.0'", "python/pyproject.toml": 'license = "Apache-2.0"',
            "contrib/rpm/cairnfs.spec": "License:        Apache-2.0",
            "debian/copyright": "License: Apache-2.0", "LICENSE": "Apache License"}


def versions():
    return {path: (re.findall(pattern, read(path), re.MULTILINE) or [None])[0] for path, pattern in PLACES.items()}


def test_versions_agree():
    found = versions()
    assert len(set(found.values())) == 1 and None not in found.values(), found
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["meson.build"])
    images = re.findall(PLACES["contrib/kubernetes/cairnfs.yaml"], read("contrib/kubernetes/cairnfs.yaml"), re.MULTILINE)
    assert set(images) == {found["meson.build"]}


def test_the_wheel_says_version_and_licence():
    """The metadata that its backend would write."""
    program = "import wheel_backend; print(wheel_backend.METADATA)"
    shown = subprocess.run([sys.executable, "-c", program], cwd=os.path.join(ROOT, "python"), capture_output=True, text=True, timeout=60,
                           check=True).stdout
    assert f"\nVersion: {versions()['meson.build']}\n" in shown and "\nLicense-Expression: Apache-2.0\n" in shown


def test_the_licence_is_named():
    assert [path for path, text in LICENCES.items() if text not in read(path)] == []
