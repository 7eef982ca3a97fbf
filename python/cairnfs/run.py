# SPDX-License-Identifier: Apache-2.0
"""python -m cairnfs.run [-m MODULE | SCRIPT] [ARGUMENT...]: runs a program with torch.save through the lane of CairnFS.

CAIRN_LAZY=1 in the environment: torch.save returns at once.
"""
import os
import runpy
import sys

from . import install
from ._library import NoLibrary


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help") or arguments[0] == "-m" and len(arguments) < 2:
        print(__doc__.strip(), file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    try:
        install()
    except NoLibrary as why:
        print(f"cairnfs.run: {why}", file=sys.stderr)
        return 1
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
