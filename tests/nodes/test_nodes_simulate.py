# SPDX-License-Identifier: Apache-2.0
"""Many nodes write one prefix (simulate/): 64 and 1,000 writers with clocks, latencies, uploads and faults.

No head is torn, and planted bugs are found.
Each simulation prints its row of figures. `python3 -m simulate --help`, in this directory, runs one."""
import dataclasses

import pytest

from simulate import report as figures_of
from simulate import settings, simulation

WITHOUT_MARKS, AS_BUILT = settings.without_marks, settings.product
TRIES = 20  # simulations in which a planted bug may be found

# name, settings, checkpoints with --full (else a tenth)
RUNS = [
    ("64 real", WITHOUT_MARKS(settings.real()), 40),
    ("64 real, faults", WITHOUT_MARKS(settings.real(fault_every=190)), 120),
    ("64 small, faults", WITHOUT_MARKS(settings.small(fault_every=15)), 350),
    ("64 small, faults, slow starts", WITHOUT_MARKS(settings.small(fault_every=15, start_skew=25)), 350),
    ("64 small, faults, quiet rounds", WITHOUT_MARKS(settings.small(fault_every=15, quiet=0.5)), 350),
    ("64 small, faults, as built", AS_BUILT(settings.small(fault_every=15)), 350),
    ("64 small, faults, marks", settings.small(fault_every=15), 500),
    ("1000 real", WITHOUT_MARKS(settings.real(nodes=1000)), 20),
    ("1000 real, faults, marks", settings.real(nodes=1000, fault_every=150), 20),
]
RUNS_FULL = [
    ("64 real, marks", settings.real(), 80),
    ("64 real, faults, marks", settings.real(fault_every=190), 120),
    ("1000 real, faults", WITHOUT_MARKS(settings.real(nodes=1000, fault_every=150)), 20),
    ("1000 small, faults", WITHOUT_MARKS(settings.small(nodes=1000, fault_every=25)), 40),
    ("1000 small, faults, marks", settings.small(nodes=1000, fault_every=25), 40),
]
PLANTED_RUN = dict(checkpoints=35, fault_every=15)
PLANTED = [
    ("no-window", WITHOUT_MARKS(settings.small(**PLANTED_RUN))),
    ("no-lease", WITHOUT_MARKS(settings.small(**PLANTED_RUN, cut_max=9))),
    ("no-eio", WITHOUT_MARKS(settings.small(**PLANTED_RUN))),
    ("dead-left-out", WITHOUT_MARKS(settings.small(**PLANTED_RUN))),
    ("old-feeds-count", settings.small(**PLANTED_RUN)),
    ("wrong-clocks", WITHOUT_MARKS(settings.small(**PLANTED_RUN))),
    ("no-common-cut", WITHOUT_MARKS(settings.small(**PLANTED_RUN))),
    ("markers-wait", WITHOUT_MARKS(settings.small(**PLANTED_RUN))),
    ("no-mark", settings.small(checkpoints=35, put=0.4)),
]
# As built, without faults, with as many nodes as a prefix takes: what is the most of a figure.
MOST = {"visible_p50": 3, "share_of_packs": 0.08}
FIGURES = [("64 real, as built", 64, {**MOST, "visible_p99": 8, "control_per_s": 55, "looks_per_s": 35}),
           ("128 real, as built", 128, {**MOST, "control_per_s": 105, "looks_per_s": 50})]
BROKEN = ("torn_heads", "torn_restores", "early_deletions")


@pytest.fixture
def simulate(report, seed):
    """simulate(name, settings) -> the figures, kept as a report."""

    def run(name, chosen):
        figures = simulation.run(dataclasses.replace(chosen, seed=seed))
        print(figures_of.row(name, figures))
        name = "nodes-" + name.replace(", ", "-").replace(" ", "-")
        report(name, {key: value if value == value else None for key, value in figures.items()})
        return figures

    return run


def check(figures):
    assert [figures[key] for key in BROKEN] == [0, 0, 0]
    assert figures["heads"] > 0


@pytest.mark.parametrize("name, chosen, checkpoints", RUNS, ids=lambda value: value if isinstance(value, str) else "")
def test_no_head_is_torn(simulate, full, name, chosen, checkpoints):
    figures = simulate(name, dataclasses.replace(chosen, checkpoints=checkpoints if full else checkpoints // 10))
    check(figures)
    if not chosen.fault_every:
        assert figures["shown"] == figures["begun"] - 1  # the last one has just begun


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name, nodes, most", FIGURES, ids=lambda value: value if isinstance(value, str) else "")
def test_figures(simulate, name, nodes, most):
    """How soon readers see a marker, once the last upload has ended; and the price of requests for names beside that of packs."""
    figures = simulate(name, AS_BUILT(settings.real(nodes=nodes, lease=60.0, checkpoints=10)))
    check(figures)
    assert figures["shown"] == 9  # the last one has just begun
    assert {name: figures[name] for name in most if figures[name] > most[name]} == {}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name, chosen, checkpoints", RUNS_FULL, ids=lambda value: value if isinstance(value, str) else "")
def test_no_head_is_torn_in_the_other_runs(simulate, full, name, chosen, checkpoints):
    if not full:
        pytest.skip("skipped: minutes, with --full")
    check(simulate(name, dataclasses.replace(chosen, checkpoints=checkpoints)))


@pytest.mark.parametrize("planted, chosen", PLANTED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_planted_bug_is_found(seed, planted, chosen):
    for number in range(TRIES):
        figures = simulation.run(dataclasses.replace(chosen, planted=frozenset([planted]), seed=seed + number))
        print(figures_of.row(f"{planted}, seed {seed + number}", figures))
        if any(figures[key] for key in BROKEN):
            return
    pytest.fail(f"{planted} was not found in {TRIES} simulations")


def test_each_planted_bug_is_tried():
    assert {planted for planted, _ in PLANTED} == set(settings.PLANTED)


def test_a_seed_repeats_a_simulation():
    chosen = settings.small(nodes=8, checkpoints=8, fault_every=15, seed=3)
    assert repr(simulation.run(chosen)) == repr(simulation.run(chosen)) != repr(simulation.run(dataclasses.replace(chosen, seed=4)))
