# SPDX-License-Identifier: Apache-2.0
"""base, format and codec compiled for aarch64, and their unit tests under emulation: golden files, hostile input, and the same bytes from NEON as
from plain C. Speed under emulation says nothing. Needs Debian's gcc-aarch64-linux-gnu and qemu-user; without them it is skipped."""
import glob
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.normpath(os.path.join(HERE, "..", ".."))
CC, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
FLAGS = ["-std=gnu17", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Wno-format-zero-length", "-Werror", f"-I{TOP}/src", f"-I{HERE}"]
LIBRARIES = "/usr/aarch64-linux-gnu"
# encode.c needs lz4, of which there is only the header of this machine's: it is compiled, and not linked. Its choice is the same for all processors.
UNLINKED = ["src/codec/encode.c"]
SUITES = {"codec": ["fx", "matrix", "dx", "ans", "dx_ans", "twin", "twin_find", "hash", "chunker", "chunker_random", "directory",
                    "tensors"],
          "format": []}
# What of that runs without --full, for it takes minutes: each kernel, and each layout.
QUICK = {
    "codec": ["fx/all_content_comes_back_the_same_from_all_kernels", "fx/golden", "dx/every_element_of_16_bits_comes_back",
              "dx/changes_take_their_bits_and_little_more", "dx/golden", "twin/all_content_comes_back_the_same_at_all_levels",
              "ans", "dx_ans/golden",
              "twin/what_no_part_covers_is_coded", "twin/golden", "twin_find/rounding_is_the_same_at_all_levels", "twin_find/a_landmark_at_any_place", "hash"],
    "format": ["golden"],
}


def sources(*patterns):
    """archive.c needs zlib's files, which tests/cross/zlib.h has not; only src/cli calls it."""
    return sorted(path for pattern in patterns for path in glob.glob(os.path.join(TOP, pattern))
                  if "avx" not in path and not path.endswith("/archive.c"))


def skip_without_tools():
    for tool, package in ((CC, "gcc-aarch64-linux-gnu"), (EMULATOR, "qemu-user")):
        if not shutil.which(tool):
            pytest.skip(f"skipped: no {tool}: apt-get install {package}")


def blake3():
    """The C sources that the build takes, too."""
    directories = sorted(glob.glob("/usr/share/cargo/registry/blake3-*/c"))
    if not directories:
        pytest.skip("skipped: no sources of BLAKE3: apt-get install librust-blake3-dev")
    return directories[-1]


class Objects:
    def __init__(self, directory):
        self.directory, self.blake3 = str(directory), blake3()
        headers = os.path.join(self.directory, "include")
        os.makedirs(headers)
        shutil.copy("/usr/include/lz4.h", headers)
        self.flags = [*FLAGS, "-isystem", headers, "-isystem", self.blake3]

    def compile(self, source, *flags):
        to = os.path.join(self.directory, os.path.relpath(source, "/").replace("/", "_") + ".o")
        subprocess.run([CC, *(flags or self.flags), "-c", source, "-o", to], check=True)
        return to

    def compile_all(self, paths, *flags):
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return list(threads.map(lambda source: self.compile(source, *flags), paths))

    def blake3_objects(self):
        names = ["blake3", "blake3_dispatch", "blake3_portable", "blake3_neon"]
        return self.compile_all([os.path.join(self.blake3, name + ".c") for name in names], "-O3", "-w", "-DBLAKE3_USE_NEON=1")

    def link(self, name, objects):
        program = os.path.join(self.directory, name)
        subprocess.run([CC, "-o", program, *objects, "-lpthread"], check=True)
        return program


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    skip_without_tools()
    objects = Objects(tmp_path_factory.mktemp("aarch64"))
    unlinked = [os.path.join(TOP, path) for path in UNLINKED]
    objects.compile_all(unlinked)
    room = objects.compile_all([s for s in sources("src/base/*.c", "src/format/*.c", "src/codec/*.c", "tests/cross/run.c") if s not in unlinked])
    room += objects.blake3_objects()
    # numbers.c makes what is coded; of the others it is the compiler's time that counts.
    numbers = [os.path.join(TOP, "tests/unit/codec/numbers.c")]
    tests = {name: [s for s in sources(f"tests/unit/{name}/*.c") if s not in numbers and not s.endswith("/encode.c")] for name in SUITES}
    made = objects.compile_all(numbers)
    return {name: objects.link(name, [*room, *(made if name == "codec" else []), *objects.compile_all(tests[name], *objects.flags, "-O1")])
            for name in SUITES}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("room", SUITES)
def test_unit_tests_pass_under_emulation(programs, room, request):
    wanted = (SUITES if request.config.getoption("--full") else QUICK)[room]
    golden = os.path.join(TOP, "tests", "unit", room, "golden")
    done = subprocess.run([EMULATOR, "-L", LIBRARIES, programs[room], *wanted], capture_output=True, text=True,
                          env={**os.environ, "CAIRN_GOLDEN": golden, "CAIRN_TESTS_EMULATED": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
