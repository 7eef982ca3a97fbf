#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pages.py CAIRN TEMPLATE OUTPUT: a man page, from its text and the tables that `cairn help --json` prints.

The name of cairn-NAME.1.in says which command it is about. Its lines @HEAD@, @OPTIONS@, @EXIT_STATUS@, @COMMANDS@, @MOUNT_OPTIONS@ and
@FIGURES@ stand for lists that are made here."""
import json
import os
import re
import subprocess
import sys
import textwrap

DATE = "November 25, 2026"
# Words of a text that stand for something to fill in.
PLACEHOLDER = re.compile(r"\b(TIME|STORE|MOUNTPOINT|PATH|SOURCE|RATE|ADDRESS|PORT|N)\b(?!-)")


def prose(text):
    """A sentence or several as lines of mdoc, each sentence on its own."""
    text = text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")
    lines = []
    # A placeholder grows by six characters, and a line of mdoc has at most 80.
    for sentence in re.split(r"(?<=[.]) (?=[A-Z])", text.replace("\\", "\\e")):
        lines += textwrap.wrap(sentence, 70, break_long_words=False, break_on_hyphens=False)
    lines = ["\\&" + line if line.startswith((".", "'")) else line for line in lines]
    return [PLACEHOLDER.sub(r"\\fI\1\\fR", line) for line in lines]


def words(argument):
    """nvme|remote are words; TIME is the name of a value."""
    mark = "Cm" if argument[0].islower() else "Ar"
    return f"{mark} {argument.replace('|', ' | ')}"


def spelled(flag, joiner=" , "):
    spellings = [flag["letter"]] if "letter" in flag else []
    spellings += ["-" + flag["name"]] if "name" in flag else []
    argument = " " + words(flag["argument"]) if "argument" in flag else ""
    return "Fl " + joiner.join(spellings) + argument


def in_synopsis(flag):
    shown = {key: value for key, value in flag.items() if key != "letter" or "name" not in flag}
    return ("" if flag["required"] else "Op ") + spelled(shown)


def operand_in_synopsis(operand):
    dots = " ..." if operand["repeated"] else ""
    return ("Op " if operand["optional"] else "") + words(operand["name"]) + dots


def head(command, _tables):
    name = command["name"]
    lines = [f".Dd {DATE}", f".Dt CAIRN-{name.upper()} 1", ".Os", ".Sh NAME", f".Nm cairn-{name}", f".Nd {command['summary']}"]
    lines += [".Sh SYNOPSIS", ".Nm cairn", f".Cm {name}"]
    lines += ["." + in_synopsis(flag) for flag in command["flags"]]
    lines += ["." + operand_in_synopsis(operand) for operand in command["operands"]]
    return lines


def options(command, tables):
    lines = [".Sh OPTIONS", ".Bl -tag -width Ds"]
    for flag in command["flags"]:
        lines += [f".It {spelled(flag)}", *prose(flag["help"])]
    lines += [".It Fl -help", "Print a summary of this page."]
    lines.append(".El")
    names = command["mount_options"]
    if names and len(names) < len(tables["mount_options"]):
        lines += [".Pp", "These options of", ".Xr mount.cairnfs 8", "select how a remote is reached:"]
        lines += [f".Fl -{name.replace('_', '-')} {'.' if name == names[-1] else ','}" for name in names]
    return lines


def exit_status(command, _tables):
    lines = [".Sh EXIT STATUS", ".Bl -tag -width Ds"]
    for status in command["exit_status"]:
        lines += [f".It {status['code']}", *prose(status["meaning"])]
    return [*lines, ".El"]


def commands(_command, tables):
    lines = ['.Bl -tag -width "cairn-metrics(1)"']
    for command in tables["commands"]:
        lines += [f".It Xr cairn-{command['name']} 1", *prose(command["summary"])]
    return [*lines, ".El"]


def mount_options(_command, tables):
    lines, group = [], None
    for option in tables["mount_options"]:
        if option["group"] != group:
            lines += [".El"] if group else []
            group = option["group"]
            lines += [f".Ss {group}", ".Bl -tag -width Ds"]
        value = option.get("value")
        if "words" in option:
            value = " Ns = Ns Cm " + " | ".join(option["words"])
        elif value:
            value = f" Ns = Ns Ar {value}"
        default = f" (default {option['default']})" if "default" in option else ""
        lines += [f".It Cm {option['name']}{value or ''}", *prose(option["help"] + default)]
    return [*lines, ".El"]


def figures(_command, tables):
    lines = [".Bl -tag -width Ds"]
    for figure in tables["figures"]:
        lines += [f".It Li {figure['json']}"]
        lines += [f".Li {figure['metric']}", ".Pp"] if "metric" in figure else []
        lines += prose(f"{figure['help'].removesuffix('.')} ({figure['unit']})")
    return [*lines, ".El"]


PARTS = {"@HEAD@": head, "@OPTIONS@": options, "@EXIT_STATUS@": exit_status, "@COMMANDS@": commands, "@MOUNT_OPTIONS@": mount_options,
         "@FIGURES@": figures}


def by_group(tables):
    """The options in the order of their groups, as help shows them."""
    groups = []
    for option in tables["mount_options"]:
        groups += [option["group"]] if option["group"] not in groups else []
    tables["mount_options"].sort(key=lambda option: groups.index(option["group"]))


def main(cairn, template, output):
    tables = json.loads(subprocess.run([cairn, "help", "--json"], check=True, capture_output=True, text=True).stdout)
    by_group(tables)
    about = re.fullmatch(r"cairn-(\w+)\.1\.in", os.path.basename(template))
    command = next((command for command in tables["commands"] if about and command["name"] == about[1]), None)
    with open(template) as file, open(output, "w") as out:
        for line in file.read().splitlines():
            out.write("\n".join(PARTS[line](command, tables) if line in PARTS else [line]) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
