#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws docs/plots/*.svg, light and dark, from docs/plots/figures.json; puts figures of new runs of the benchmarks there first.

    plot.py                                                        # draws what figures.json has
    plot.py --lazy lazy.json --write write.json --remote remote.json --stored stored.json --machine "2 cores, ..."
    plot.py --check                                                # fails where a picture is not that of the figures

Each option takes what the benchmark of that name wrote with --json; what is not given stays as it is.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from xml.sax.saxutils import escape

HERE = os.path.dirname(os.path.abspath(__file__))
DIRECTORY = os.path.join(HERE, "..", "docs", "plots")
THEMES = {
    "light": {"text": "#1f2328", "dim": "#59636e", "line": "#d1d9e0", "cairn": "#0969da", "other": "#9a9fa6", "whisker": "#1f2328"},
    "dark": {"text": "#f0f6fc", "dim": "#9198a1", "line": "#3d444d", "cairn": "#4493f8", "other": "#656c76", "whisker": "#f0f6fc"},
}
WIDTH, LABEL, VALUE, ROW, BAR, HEAD, FOOT = 760, 290, 66, 26, 16, 46, 34


# --- drawing

def text(x, y, content, theme, color="text", size=13, anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{theme[color]}" font-size="{size}" font-weight="{weight}" '
            f'text-anchor="{anchor}">{escape(content)}</text>')  # fmt: skip


def line(x1, y1, x2, y2, color, dashes=""):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="1"{dashes}/>'


def number(value):
    if 0 < value < 0.001:
        return "< 0.001"
    return f"{value:.2g}" if value < 0.1 else f"{value:.3g}"


def bar(row, y, scale, theme):
    """The name, the bar, its value and, where they are known, least and most."""
    length = max(1.5, row["value"] * scale)
    yield text(LABEL - 10, y + BAR - 3, row["name"], theme, anchor="end")
    yield f'<rect x="{LABEL}" y="{y:.1f}" width="{length:.1f}" height="{BAR}" rx="2" fill="{theme[row["kind"]]}"/>'
    end = length
    if "least" in row:
        low, end, middle = row["least"] * scale, max(length, row["most"] * scale), y + BAR / 2
        yield line(LABEL + low, middle, LABEL + row["most"] * scale, middle, theme["whisker"])
        yield from (line(LABEL + at, middle - 4, LABEL + at, middle + 4, theme["whisker"]) for at in (low, row["most"] * scale))
    yield text(LABEL + end + 8, y + BAR - 3, number(row["value"]), theme, weight="bold" if row["kind"] == "cairn" else "normal")


def draw(figure, theme):
    rows = figure["bars"]
    most = max(max(row["value"], row.get("most", 0)) for row in rows)
    scale = (WIDTH - LABEL - VALUE) / max(most, figure.get("reference", 0))
    height = HEAD + ROW * len(rows) + FOOT
    parts = [text(8, 20, figure["title"], theme, size=15, weight="bold"), text(8, 37, figure["axis"], theme, "dim", 12)]
    if "reference" in figure:
        x = LABEL + figure["reference"] * scale
        parts.append(line(x, HEAD, x, HEAD + ROW * len(rows), theme["dim"], ' stroke-dasharray="4 3"'))
    parts.append(line(LABEL, HEAD, LABEL, HEAD + ROW * len(rows), theme["line"]))
    for at, row in enumerate(rows):
        parts += bar(row, HEAD + ROW * at + (ROW - BAR) / 2, scale, theme)
    parts.append(text(8, height - 12, f"{figure['machine']}; commit {figure['commit']}", theme, "dim", 11))
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif">')  # fmt: skip
    return "\n".join([head, f"<title>{escape(figure['title'])}</title>", *parts, "</svg>", ""])


def pictures(figures):
    """file name -> its text"""
    return {f"{name}-{shade}.svg": draw(figure, theme) for name, figure in figures.items() for shade, theme in THEMES.items()}


# --- figures of the benchmarks

def row(name, kind, values):
    return {"name": name, "kind": kind, "value": statistics.median(values), "least": min(values), "most": max(values)}


def of_times(times, wanted):
    return [row(shown, kind, times[name]) for name, shown, kind in wanted if name in times]


def from_lazy(results):
    return of_times(results["times"], [
        ("torch.save + fsync, disk", "torch.save to ext4 on the disk, fsync", "other"),
        ("torch.save, tmpfs", "torch.save to tmpfs", "other"),
        ("torch.save, mount", "torch.save to the mount", "cairn"),
        ("cairnfs.save eager, mount", "cairnfs.save to the mount, eager", "cairn"),
        ("cairnfs.save lazy, mount: call + fence", "cairnfs.save to the mount, lazy", "cairn"),
    ])  # fmt: skip


def from_write(results):
    rows = []
    for title, result in results.items():
        case = title.split(", ", 1)[1].replace("writes of ", "")
        for ratio, shown, kind in (("mount / tmpfs, in place", "mount", "cairn"), ("floor / tmpfs, in place", "floor", "other")):
            figure = result["ratios"][ratio]
            rows.append({"name": f"{shown}, {case}", "kind": kind, "value": figure["ratio"], "least": figure["least"],
                         "most": figure["most"]})
    return rows


def from_remote(results):
    alone = of_times(results.get("cold restore", {}).get("times", {}), [
        ("mount", "1 GB: mount, verified and kept on NVMe", "cairn"),
        ("floor", "1 GB: floor, a daemon that verifies", "other"),
        ("curl GET, whole objects", "1 GB: 16 curl, objects of 24 MiB", "other"),
        ("curl GET, 8 MiB", "1 GB: 16 curl, ranges of 8 MiB", "other"),
    ])  # fmt: skip
    beside = of_times(results.get("cold restore beside other mounts", {}).get("times", {}), [
        ("mount", "0.5 GB: mount", "cairn"), ("rclone", "0.5 GB: rclone mount", "other"), ("s3fs", "0.5 GB: s3fs", "other"),
    ])  # fmt: skip
    return alone + beside


def from_stored(results):
    return [{"name": case["name"], "kind": case.get("kind", "cairn"), "value": case["stored"] / case["raw"]} for case in results["cases"]]


SOURCES = {"lazy": ("blocked", from_lazy), "write": ("write", from_write), "remote": ("restore", from_remote),
           "stored": ("stored", from_stored)}


def head_commit():
    return subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def update(figures, args):
    for source, (name, function) in SOURCES.items():
        path = getattr(args, source)
        if path:
            with open(path) as file:
                rows = function(json.load(file))
            figures[name].update({"bars": rows, "commit": args.commit or head_commit(),
                                  "machine": args.machine or figures[name]["machine"]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for source in SOURCES:
        parser.add_argument(f"--{source}", help=f"what bench_{source}.py wrote with --json")
    parser.add_argument("--machine", help="what the figures were measured on; shown below the plot")
    parser.add_argument("--commit", help="of the code that was measured (default: HEAD)")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    path = os.path.join(DIRECTORY, "figures.json")
    with open(path) as file:
        figures = json.load(file)
    update(figures, args)
    drawn = pictures(figures)
    if args.check:
        sys.exit(1 if outdated(drawn) else 0)
    with open(path, "w") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")
    for name, content in drawn.items():
        with open(os.path.join(DIRECTORY, name), "w") as file:
            file.write(content)


def outdated(drawn):
    """The pictures that are not those of the figures, and those of no figure."""
    there = {name for name in os.listdir(DIRECTORY) if name.endswith(".svg")}
    wrong = there ^ set(drawn)
    for name in there & set(drawn):
        with open(os.path.join(DIRECTORY, name)) as file:
            if file.read() != drawn[name]:
                wrong.add(name)
    for name in sorted(wrong):
        print(f"{name}: not what figures.json says; run bench/plot.py", file=sys.stderr)
    return sorted(wrong)


if __name__ == "__main__":
    main()
