# SPDX-License-Identifier: Apache-2.0
"""One simulation, by the command line."""
import argparse
import dataclasses

from . import report, settings, simulation


def parse():
    parser = argparse.ArgumentParser(prog="python3 -m simulate")
    parser.add_argument("--small", action="store_true", help="small shards, a checkpoint each 8 s")
    parser.add_argument("--without-marks", action="store_true")
    parser.add_argument("--planted", choices=sorted(settings.PLANTED), action="append", default=[])
    for field in dataclasses.fields(settings.Settings):
        if field.name != "planted":
            parser.add_argument("--" + field.name.replace("_", "-"), type=field.type)
    return vars(parser.parse_args())


def main():
    arguments = parse()
    is_small, without_marks, planted = arguments.pop("small"), arguments.pop("without_marks"), frozenset(arguments.pop("planted"))
    given = {name: value for name, value in arguments.items() if value is not None}
    chosen = (settings.small if is_small else settings.real)(planted=planted, **given)
    figures = simulation.run(settings.without_marks(chosen) if without_marks else chosen)
    print("\n".join(f"{name:22} {value:.4g}" for name, value in figures.items()))
    print(report.row("simulation", figures))


if __name__ == "__main__":
    main()
