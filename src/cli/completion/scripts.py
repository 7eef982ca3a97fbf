#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts.py CAIRN TEMPLATE... OUTPUT: the completion scripts as strings of C, completion_SHELL from cairn.SHELL.in.

Each @NAME@ in a template stands for a part that is made here, from the tables that `cairn help --json` prints."""
import json
import os
import subprocess
import sys

# The ways in which a shell offers what a flag or an operand takes.
BASH = {"words": "_cairn_offer ", "commands": "_cairn_offer $_cairn_commands", "mountpoints": "_cairn_mountpoints",
        "directories": "_cairn_files -d", "files": "_cairn_files -f", "options": "_cairn_options"}
ZSH = {"commands": "_cairn_commands", "mountpoints": "_cairn_mountpoints", "directories": "_files -/", "files": "_files",
       "options": "_cairn_options"}
FISH = {"words": " -x -a '{}'", "commands": " -x -a '@COMMAND_NAMES@'", "mountpoints": " -x -a '(__cairn_mountpoints)'",
        "directories": " -x -a '(__fish_complete_directories)'", "files": " -r -F",
        "options": " -x -a '(__fish_complete_list , __cairn_options)'"}


def offers_of(argument):
    if argument[0].islower():
        return ["words"]
    return {"LIST": ["options"], "PATH": ["files"]}.get(argument, [])


def prepare(tables):
    """Adds the flags of mount options to those of each command, and the offers of each flag and command."""
    options = {option["name"]: option for option in tables["mount_options"]}
    for command in tables["commands"]:
        for option in (options[name] for name in command["mount_options"]):
            argument = "|".join(option.get("words", [])) or option.get("value")
            flag = {"name": option["name"].replace("_", "-"), "help": option["help"]}
            command["flags"].append({**flag, "argument": argument} if argument else flag)
        for flag in command["flags"]:
            flag["spelled"] = [dashes + flag[key] for dashes, key in (("-", "letter"), ("--", "name")) if key in flag]
            flag["offers"] = offers_of(flag["argument"]) if "argument" in flag else []
        # Shells offer the same for each operand.
        command["offers"] = [offer for offer in BASH if any(offer in operand["offers"] for operand in command["operands"])]
        command["words"] = spaced(command["operands"][0]["name"]) if "words" in command["offers"] else ""
    return tables


def spaced(words):
    return words.replace("|", " ")


def quoted(text):
    """Text inside single quotes, where zsh gives brackets a meaning."""
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")")


def bash_offer(offers, words):
    calls = [BASH[offer] + (words if offer == "words" else "") for offer in offers]
    return f"{' ; '.join(calls or [':'])} ;;"


def bash_parts(commands, _options):
    every = [(c["name"], flag) for c in commands for flag in c["flags"] if "argument" in flag]
    return {
        "VALUES": [f"    {' | '.join(f'{name}/{flag}' for flag in f['spelled'])}) {bash_offer(f['offers'], spaced(f['argument']))}"
                   for name, f in every],
        "FLAGS": [f"    {c['name']}) _cairn_offer --help {' '.join(word for f in c['flags'] for word in f['spelled'])}".rstrip() + " ;;"
                  for c in commands],
        "OPERANDS": [f"    {c['name']}) {bash_offer(c['offers'], c['words'])}" for c in commands]}


def zsh_flag(flag, spelled):
    """-l+ and --level= take their argument behind them or as the next word."""
    argument = flag.get("argument")
    if not argument:
        return f"{spelled}[{quoted(flag['help'])}]"
    action = f"({spaced(argument)})" if flag["offers"] == ["words"] else "".join(ZSH[offer] for offer in flag["offers"]) or " "
    glue = "=" if spelled.startswith("--") else "+"
    return f"{spelled}{glue}[{quoted(flag['help'])}]:{'word' if argument[0].islower() else argument}:{action}"


def zsh_arguments(command):
    name, offers = command["name"], command["offers"]
    lines = [f"    {name})\n        _arguments '--help[explain the command]'"]
    lines += [f"            '{zsh_flag(flag, spelled)}'" for flag in command["flags"] for spelled in flag["spelled"]]
    if len(offers) == 1:
        lines.append(f"            '*:{name}:{ZSH.get(offers[0], '(' + command['words'] + ')')}'")
    elif offers:
        ways = " ".join(f'"{name}\\:{name}\\:{ZSH.get(offer, "(" + command["words"] + ")")}"' for offer in offers)
        lines.append(f"            '*:{name}:_alternative {ways}'")
    return " \\\n".join(lines) + " ;;"


def zsh_option(option):
    kind = f":{option['value']}" if "value" in option else ""
    return f"        '{option['name']}[{quoted(option['help'])}]{kind}{':(' + ' '.join(option['words']) + ')' if 'words' in option else ''}'"


def zsh_parts(commands, options):
    return {"COMMANDS": [f"        '{c['name']}:{quoted(c['summary'])}'" for c in commands],
            "OPTIONS": [" \\\n".join(map(zsh_option, options))],
            "ARGUMENTS": map(zsh_arguments, commands)}


def fish_flag(flag):
    spelled = (f" -s {flag['letter']}" if "letter" in flag else "") + (f" -l {flag['name']}" if "name" in flag else "")
    takes = "".join(FISH[offer].format(spaced(flag["argument"])) for offer in flag["offers"]) or " -x" * ("argument" in flag)
    return f"{spelled}{takes} -d '{quoted(flag['help'])}'"


def fish_parts(commands, _options):
    lines = []
    for c in commands:
        lines.append(f"complete -c cairn -n __cairn_is_command -a {c['name']} -d '{quoted(c['summary'])}'")
        ends = [fish_flag(flag) for flag in c["flags"]] + [FISH[offer].format(c["words"]) for offer in c["offers"]]
        lines += [f"complete -c cairn -n '__cairn_is_command {c['name']}'{end}" for end in ends]
    return {"COMPLETIONS": lines}


def script(tables, shell, template):
    commands, options = tables["commands"], tables["mount_options"]
    parts = {"COMMAND_NAMES": [" ".join(c["name"] for c in commands)],
             "OPTION_NAMES": ["".join(f"{o['name']}{'=' if 'value' in o else ''} " for o in options)],
             "OPTION_VALUES": ["".join(f"{o['name']}={word} " for o in options for word in o.get("words", []))],
             **{"bash": bash_parts, "zsh": zsh_parts, "fish": fish_parts}[shell](commands, options)}
    for name in [*parts][::-1]:
        template = template.replace(f"@{name}@", "\n".join(parts[name]))
    return template


def main(cairn, *templates, output):
    tables = prepare(json.loads(subprocess.run([cairn, "help", "--json"], check=True, capture_output=True, text=True).stdout))
    with open(output, "w") as out:
        out.write('#pragma GCC diagnostic ignored "-Woverlength-strings"\n')
        for path in templates:
            shell = os.path.basename(path).split(".")[1]
            with open(path) as file:
                text = script(tables, shell, file.read())
            lines = [f'"{line}\\n"' for line in text.replace("\\", "\\\\").replace('"', '\\"').splitlines()]
            out.write(f"const char completion_{shell}[] =\n    " + "\n    ".join(lines) + ";\n")


if __name__ == "__main__":
    main(*sys.argv[1:-1], output=sys.argv[-1])
