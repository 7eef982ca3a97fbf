# SPDX-License-Identifier: Apache-2.0
"""Counts, and the row of figures of one simulation."""
import dataclasses


@dataclasses.dataclass
class Report:
    heads: int = 0
    quiet: int = 0  # of these, at quiet rounds
    kills: int = 0
    cuts: int = 0  # from the store
    merger_deaths: int = 0
    generations: int = 0
    clean_ends: int = 0
    fenced: int = 0
    eio: int = 0
    set_aside: int = 0  # operations
    waits: list = dataclasses.field(default_factory=list)  # of operations, for windows, marks, leases
    verdicts: list = dataclasses.field(default_factory=list)  # seconds from a session's last object to its END


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def dollars(requests):
    return (requests["PUT"] + requests["LIST"]) * 5e-6 + (requests["GET"] + requests["LOOK"]) * 4e-7


def figures(simulation):
    """Of a simulation that has run."""
    report, judge, requests, now = simulation.report, simulation.judge, simulation.store.requests, simulation.clock.now
    begun = simulation.trainer.begun
    return {
        "seconds": now, "begun": begun, "shown": judge.shown, "heads": report.heads, "quiet": report.quiet,
        "kills": report.kills, "cuts": report.cuts, "merger_deaths": report.merger_deaths,
        "generations": report.generations, "clean_ends": report.clean_ends, "fenced": report.fenced, "eio": report.eio,
        "set_aside": report.set_aside,
        "torn_heads": judge.torn_heads, "torn_restores": judge.torn_restores, "early_deletions": judge.early_deletions,
        "visible_p50": percentile(judge.latencies, 0.5), "visible_p99": percentile(judge.latencies, 0.99),
        "wait_p50_ms": percentile(report.waits, 0.5) * 1e3, "wait_p99_ms": percentile(report.waits, 0.99) * 1e3,
        "verdict_p50": percentile(report.verdicts, 0.5),
        "control_per_s": (requests["PUT"] + requests["LIST"] + requests["GET"]) / now, "looks_per_s": requests["LOOK"] / now,
        "packs_per_checkpoint": requests["PACK"] / max(1, begun), "dollars_per_checkpoint": dollars(requests) / max(1, begun),
        "share_of_packs": dollars(requests) / max(1e-9, requests["PACK"] * 5e-6),
    }


def row(name, f):
    """The figures in one line."""
    return (f"{name}: {f['begun']} begun, {f['kills'] + f['cuts']} faults (+ {f['merger_deaths']} mergers), {f['generations']} generations; "
            f"torn {f['torn_heads']} heads / {f['torn_restores']} restores / {f['early_deletions']} deletions before their marker; "
            f"last upload -> visible p50 {f['visible_p50']:.2f} p99 {f['visible_p99']:.2f} s; "
            f"operations wait p50 {f['wait_p50_ms']:.0f} p99 {f['wait_p99_ms']:.0f} ms; "
            f"a second: control {f['control_per_s']:.1f}, looks {f['looks_per_s']:.1f}; ${f['dollars_per_checkpoint']:.4f} a checkpoint, {f['share_of_packs']:.1%} of its packs")
