# SPDX-License-Identifier: Apache-2.0
"""Judges every head: a marker has all its shards, a deletion comes after a later marker."""


class Judge:
    def __init__(self, settings):
        self.nodes = settings.nodes
        self.shards, self.deleted = {}, {}  # by checkpoint: the nodes of which the newest head shows it
        self.markers, self.newest_marker = set(), 0
        self.shard_ready = {}  # by checkpoint: when its last shard was uploaded
        self.torn_heads = self.torn_restores = self.early_deletions = 0
        self.shown = 0
        self.last_news = -1e9  # when a head had operations
        self.latencies = []  # from the last upload of a checkpoint to the head that shows it

    def note_shard(self, checkpoint, ready):
        self.shard_ready[checkpoint] = max(self.shard_ready.get(checkpoint, 0), ready)

    def show(self, node, operation, now):
        """A head has the operation."""
        checkpoint = operation.checkpoint
        self.last_news = now
        if operation.kind == "shard":
            self.shards.setdefault(checkpoint, set()).add(node)
        elif operation.kind == "delete":
            self.deleted.setdefault(checkpoint, set()).add(node)
        elif operation.kind == "marker":
            self.markers.add(checkpoint)
            self.newest_marker = max(self.newest_marker, checkpoint)
            self.shown += 1
            self.latencies.append(now - max(operation.ready, self.shard_ready.get(checkpoint, 0)))

    def is_torn(self, checkpoint):
        return len(self.shards.get(checkpoint, ())) < self.nodes

    def check(self):
        self.markers -= self.deleted.keys()
        self.torn_heads += sum(self.is_torn(checkpoint) for checkpoint in self.markers)
        self.early_deletions += sum(self.newest_marker <= checkpoint for checkpoint in self.deleted)
        for checkpoint in [checkpoint for checkpoint in self.deleted if checkpoint < self.newest_marker - 20]:
            del self.deleted[checkpoint]
            self.shards.pop(checkpoint, None)

    def restore(self):
        """The newest checkpoint that a job finds; None: none."""
        newest = max((checkpoint for checkpoint in self.markers if checkpoint not in self.deleted), default=None)
        self.torn_restores += newest is not None and self.is_torn(newest)
        return newest
