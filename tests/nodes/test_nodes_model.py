# SPDX-License-Identifier: Apache-2.0
"""The protocol by which several nodes write one prefix: all states of the model (model/main.c) within bounds.

The protocol holds, and each bug that is planted in it is found. A change of the protocol changes the model first; then the counts here."""
import os
import re
import resource
import subprocess

import pytest

MEMORY = 6 << 30
CRASH, ZOMBIE, JOIN = ("--crashes", "1"), ("--zombies", "1"), ("--joins", "1")
K2, NODES3 = ("--rounds", "2"), ("--nodes", "3")
# A node leaves, and its store begins another stay; a daemon dies, and the next goes on with the stay. Nobody is given up, as it is built.
LEAVE, RESTART = ("--leaves", "1", *JOIN), ("--restarts", "1")
# Without deletions one round is enough for both jobs.
SHORT = ("no-deletions", "start-skew")

# (arguments, states)
HOLDS = [
    ((*SHORT, *CRASH, *ZOMBIE), 448646),
    ((*SHORT, *CRASH, *JOIN), 578192),
    ((*SHORT, *ZOMBIE, "two-mergers"), 1153140),
    ((*K2, *ZOMBIE), 586940),
    (("no-deletions", *NODES3, *CRASH), 189198),
    ((*SHORT, *CRASH, *ZOMBIE, "old-marks-hold"), 396358),
    (("marks", *SHORT, *ZOMBIE), 343100),
    (("marks", *SHORT, *CRASH, *JOIN), 997080),
    ((*SHORT, *LEAVE, *RESTART), 174590),
    ((*SHORT, *LEAVE, "two-mergers"), 188356),
    ((*K2, *LEAVE), 710220),
    (("no-deletions", *NODES3, *LEAVE), 162540),
    ((*SHORT, *LEAVE, *RESTART, "entries-go"), 389478),
    # As long as no entry goes, the order of the two lists is free: who is listed and told nothing holds the cut back.
    ((*SHORT, *LEAVE, "feeds-first"), 68794),
    # Values that nothing reads any more tell states apart, too: forgetting them changes no result. Sessions find out later that they are
    # ended. An independent model counts the same.
    ((*SHORT, *CRASH, *ZOMBIE, "keep-all", "no-claim"), 817392),
    (("marks", *SHORT, *ZOMBIE, "keep-all", "claims-unseen", "old-marks-hold"), 506038),
]
# With --full.
HOLDS_FULL = [
    (("no-deletions", *CRASH, *ZOMBIE, *JOIN), 6269148),
    ((*SHORT, *CRASH, *ZOMBIE, *JOIN), 13487444),
    ((*SHORT, *NODES3, *ZOMBIE), 2813511),
    ((*SHORT, *K2, *ZOMBIE), 1372884),
    (("--rounds", "3", *ZOMBIE), 5023328),
    ((*K2, *LEAVE, *RESTART), 9387422),
    (("no-deletions", *NODES3, *LEAVE, *RESTART), 2166225),
    ((*SHORT, "--joins", "2", "--leaves", "2", "two-mergers"), 2363205),
    ((*SHORT, *LEAVE, *CRASH), 2348338),
    ((*SHORT, *LEAVE, *ZOMBIE), 3918064),
    (("marks", *SHORT, *CRASH, *ZOMBIE), 1399542),
    (("marks", *K2, *CRASH), 1060708),
    (("marks", *K2, *ZOMBIE), 1850000),
    (("marks", *SHORT, *ZOMBIE, "two-mergers"), 6068241),
    (("marks", *SHORT, *CRASH, "two-mergers"), 1870636),
    (("marks", "no-deletions", *NODES3, *CRASH), 1698838),
    (("marks", "no-deletions", *NODES3, *ZOMBIE), 3652800),
    (("marks", *SHORT, *CRASH, *ZOMBIE, *JOIN), 17550033),
    ((*SHORT, *ZOMBIE, "two-mergers", "keep-all", "no-claim"), 958400),
    (("no-deletions", *NODES3, *CRASH, "keep-all", "no-claim"), 442647),
    ((*SHORT, *NODES3, *ZOMBIE, "keep-all", "no-claim"), 5278026),
    (("marks", *SHORT, *CRASH, *ZOMBIE, "keep-all", "claims-unseen"), 3491400),
]
# (planted, arguments, steps of the shortest way)
BROKEN = [
    ("no-lease", ("no-deletions", *ZOMBIE), 20),
    ("settle", (*SHORT, *ZOMBIE), 20),
    ("no-window", ("no-deletions", *K2), 12),
    ("no-eio", ("no-deletions", *CRASH), 17),
    ("no-rendezvous", (*SHORT, *CRASH), 21),
    ("no-claim", ("no-deletions", *CRASH, *ZOMBIE, *JOIN), 28),
    ("claims-unseen", ("no-deletions", *CRASH, *ZOMBIE, *JOIN), 28),
    ("no-second-look", ("no-deletions", *CRASH, *JOIN), 23),
    ("old-feeds-count", ("no-deletions", *CRASH), 13),
    ("dead-left-out", ("no-deletions", *CRASH), 11),
    ("ended-dropped", ("no-deletions", *CRASH), 13),
    ("lost-goes-on", ("no-deletions", *CRASH), 13),
    ("leave-early", ("no-deletions", "--leaves", "1"), 12),
    ("numbers-after-leave", ("no-deletions", "--leaves", "1"), 12),
    ("join-unlisted", ("no-deletions", *LEAVE), 17),
    ("late-clock", ("no-deletions", *LEAVE), 19),
    ("leave-unseen", ("no-deletions", "--leaves", "1", *RESTART), 17),
    ("feeds-first", ("no-deletions", "--leaves", "1", "entries-go"), 15),
    ("no-lease", ("marks", "no-deletions", *ZOMBIE), 26),
    ("settle", ("marks", *SHORT, *ZOMBIE), 26),
    ("no-window", ("marks", "no-deletions", *K2), 16),
    ("no-claim", ("marks", "no-deletions", *ZOMBIE), 19),
    ("no-mark", ("marks", "no-deletions"), 12),
    ("no-eio", ("marks", "no-deletions", *CRASH), 23),
    ("no-rendezvous", ("marks", *SHORT, *CRASH), 27),
    ("old-feeds-count", ("marks", "no-deletions", *CRASH), 18),
    ("dead-left-out", ("marks", "no-deletions", *CRASH), 17),
    ("ended-dropped", ("marks", "no-deletions", *CRASH), 19),
    ("lost-goes-on", ("marks", "no-deletions", *CRASH), 19),
    ("feeds-first", ("marks", "no-deletions"), 19),
    ("late-delete", ("marks", "no-deletions", *K2), 24),
]
# From every state all gets merged, if no other fault follows.
NEVER_STUCK = [
    (*SHORT, *CRASH),
    (*SHORT, *ZOMBIE),
    ("no-deletions", *CRASH, *JOIN),
    (*SHORT, *LEAVE, *RESTART),
    ("marks", "no-deletions", *CRASH),
    ("marks", "no-deletions", *ZOMBIE),
]


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


@pytest.fixture
def search(request, sanitized):
    """search(argument...) -> what the model prints."""
    program = os.path.join(request.config.getoption("--build"), "tests", "nodes", "nodes-model")
    if not os.access(program, os.X_OK):
        pytest.skip("skipped: the tests were not built (-Dtests=enabled)")

    def run(*arguments):
        done = subprocess.run([program, *arguments], capture_output=True, text=True, preexec_fn=None if sanitized else limit_memory)
        print(" ".join(arguments), done.stdout, done.stderr, sep="\n")
        assert done.returncode in (0, 1), done.stderr or done.stdout
        return done.stdout

    return run


def check_holds(search, arguments, states):
    told = search(*arguments)
    assert told.startswith("holds: "), told
    assert int(re.match(r"holds: (\d+) states", told)[1]) == states


@pytest.mark.parametrize("arguments, states", HOLDS, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_the_protocol_holds(search, arguments, states):
    check_holds(search, arguments, states)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("arguments, states", HOLDS_FULL, ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_the_protocol_holds_within_larger_bounds(search, full, arguments, states):
    if not full:
        pytest.skip("skipped: millions of states, with --full")
    check_holds(search, arguments, states)


@pytest.mark.parametrize("planted, arguments, steps", BROKEN, ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value))
def test_a_planted_bug_is_found(search, planted, arguments, steps):
    told = search(*arguments, planted)
    assert told.startswith("broken: "), told
    assert int(re.match(r"broken: \d+ states, (\d+) steps", told)[1]) == steps


@pytest.mark.parametrize("arguments", NEVER_STUCK, ids=" ".join)
def test_all_gets_merged_in_the_end(search, arguments):
    assert search(*arguments, "--stuck").endswith("stuck: 0 states\n")


def test_each_planted_bug_is_tried(request):
    """An option that says "planted" and that no test has would prove nothing."""
    directory = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model")
    with open(os.path.join(directory, "rules.c")) as file:
        options = re.findall(r'\{"([\w-]+)", &rules\.\w+,\s*"planted', file.read())
    assert len(options) > 10
    assert {planted for planted, _, _ in BROKEN} == set(options)
