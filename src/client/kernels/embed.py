# SPDX-License-Identifier: Apache-2.0
"""Writes PTX as the bytes of a C array: embed.py PTX HEADER [PTXAS]

nvcc writes the PTX version of its own release, which older drivers refuse, and cannot aim below its oldest device. The kernels use nothing
newer than PTX 6.0 (CUDA 9) and sm_70 (Volta), so that is what the text claims; ptxas, where it is found, says whether that holds."""
import os
import re
import subprocess
import sys

VERSION, TARGET = "6.0", "sm_70"


def main(source, header, ptxas=None):
    with open(source) as file:
        text = file.read()
    text, versions = re.subn(r"^\.version .*$", f".version {VERSION}", text, flags=re.M)
    text, targets = re.subn(r"^\.target .*$", f".target {TARGET}", text, flags=re.M)
    if versions != 1 or targets != 1:
        sys.exit(f"{source}: no PTX")
    text = re.sub(r"^//.*\n", "", text, flags=re.M)  # comments: the build of the compiler
    if ptxas:
        lowered = header + ".ptx"
        with open(lowered, "w") as file:
            file.write(text)
        subprocess.run([ptxas, "-arch=sm_90", lowered, "-o", os.devnull], check=True)
    data = text.encode() + b"\0"
    lines = (", ".join(str(byte) for byte in data[at : at + 32]) for at in range(0, len(data), 32))
    with open(header, "w") as file:
        file.write("/* Made by kernels/embed.py. */\nstatic const char fingerprint_ptx[] = {\n    " + ",\n    ".join(lines) + "};\n")


main(*sys.argv[1:])
