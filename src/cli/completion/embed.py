#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py SCRIPT... OUTPUT: the scripts as strings of C, named completion_SHELL after cairn.SHELL.in."""
import os
import sys


def c_lines(text):
    for line in text.splitlines():
        yield '    "' + line.replace("\\", "\\\\").replace('"', '\\"') + '\\n"'


*scripts, output = sys.argv[1:]
with open(output, "w") as out:
    out.write('#include "cli/completion.h"\n')
    for script in scripts:
        with open(script) as file:
            body = "\n".join(c_lines(file.read()))
        out.write(f"\nconst char completion_{os.path.basename(script).split('.')[1]}[] =\n{body};\n")
