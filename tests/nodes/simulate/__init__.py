# SPDX-License-Identifier: Apache-2.0
"""Simulation of many nodes that write one prefix: hundreds of writers, one merger, a job that saves checkpoints, faults.

Discrete events; times in seconds. The protocol is the one of tests/nodes/model, which is exhaustive and small; this has real latencies,
clocks, uploads and numbers of nodes, and chance. `python3 -m simulate --help` in tests/nodes runs one simulation and prints its figures.

    settings.py     bounds, latencies, planted bugs
    clock.py        the events
    store.py        the remote: heads, objects of sessions, requests and their latencies
    writer.py       a session: looks, lease, marks, numbers of operations;  feeds.py: its rounds and feeds
    merger.py       heads;  cut.py: the round of the next one
    job.py          processes that save, restore and delete
    faults.py       kills, cuts from the store, deaths of the merger
    judge.py        judges every head
    report.py       counts and the printed figures
    simulation.py   all of them together
"""
