# SPDX-License-Identifier: Apache-2.0
"""Other designs, which have no common cut: what they break is what the cut is for."""


def newest_numbers(simulation, sessions):
    """Of each session what its newest feed has."""
    generation = simulation.store.head.generation
    numbers = {session: max([session.stored.merged, *(feed.number for feed in session.stored.feeds if feed.generation == generation)])
               for session in sessions}
    if simulation.settings.has("markers-wait"):
        hold_marker_back(simulation, numbers)
    return numbers


def hold_marker_back(simulation, numbers):
    """A marker (of node 0) waits for the shards of all nodes, as a job's hints would tell."""
    writer = simulation.sessions[0]
    if writer not in numbers:
        return
    for k in range(writer.stored.merged, numbers[writer]):
        operation = writer.operations[k]
        if operation.kind == "marker" and not has_all_shards(simulation, numbers, operation.checkpoint):
            numbers[writer] = k
            return


def has_all_shards(simulation, numbers, checkpoint):
    nodes = {session.node for session, number in numbers.items() for operation in session.operations[:number]
             if operation.kind == "shard" and operation.checkpoint == checkpoint}
    return len(nodes | simulation.judge.shards.get(checkpoint, set())) == simulation.settings.nodes
