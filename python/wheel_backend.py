# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 backend of this directory: a wheel of cairnfs/ and of libcairn.so.0 from the build directory."""
import base64
import hashlib
import os
import re
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "cairnfs"
LIBRARY = "libcairn.so.0"
HOMEPAGE = "https://example.org/cairnfs"  # as in contrib/rpm
with open(os.path.join(HERE, NAME, "__init__.py")) as source:
    VERSION = re.search(r'^__version__ = "(.*)"$', source.read(), re.MULTILINE)[1]
METADATA = f"""\
Metadata-Version: 2.4
Name: {NAME}
Version: {VERSION}
Summary: Saves of PyTorch checkpoints that return at once
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.9
Requires-Dist: torch>=2.4
Project-URL: Homepage, {HOMEPAGE}
"""


def library():
    build = os.environ.get("CAIRN_BUILD", os.path.join(HERE, "..", "build"))
    path = os.path.join(build, "src", "client", LIBRARY)
    if not os.path.exists(path):
        raise SystemExit(f"{path} is not there: build first, or name the build directory in $CAIRN_BUILD")
    return path


def files():
    package = os.path.join(HERE, NAME)
    for name in sorted(os.listdir(package)):
        if name.endswith((".py", ".typed")):
            yield f"{NAME}/{name}", os.path.join(package, name)
    yield f"{NAME}/{LIBRARY}", library()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    info = f"{NAME}-{VERSION}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: cairnfs\nRoot-Is-Purelib: false\nTag: {tag}\n"
    contents = {f"{info}/METADATA": METADATA.encode(), f"{info}/WHEEL": wheel.encode()}
    for name, path in (*files(), (f"{info}/licenses/LICENSE", os.path.join(HERE, "..", "LICENSE"))):
        with open(path, "rb") as file:
            contents[name] = file.read()
    name = f"{NAME}-{VERSION}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as archive:
        record = ""
        for path, data in contents.items():
            archive.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(data)}\n"
        archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("a wheel carries the library of a built tree: there is no source distribution of this directory alone")
