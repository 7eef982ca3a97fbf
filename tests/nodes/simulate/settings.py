# SPDX-License-Identifier: Apache-2.0
"""What is simulated."""
import dataclasses

PLANTED = {
    "no-window": "operations are numbered within the error of the clocks around an instant, too",
    "no-mark": "no mark: an idle session that begins to write is not seen",
    "no-lease": "a writer numbers operations however old its last look is",
    "no-eio": "processes from before an END go on",
    "dead-left-out": "a dead session holds no cut back, and its death ends no generation",
    "old-feeds-count": "feeds of an ended generation count",
    "wrong-clocks": "clocks are wrong by 200 ms",
    "no-common-cut": "another design: a head has the newest feed of each session",
    "markers-wait": "another design: as no-common-cut, but a marker waits for all shards of its checkpoint",
}


FEW = 8  # nodes, up to which each makes as many requests


@dataclasses.dataclass(frozen=True)
class Settings:
    nodes: int = 64
    seed: int = 1
    checkpoints: int = 300  # begun; then the simulation ends
    planted: frozenset = frozenset()
    # the protocol
    round_length: float = 2.0  # D
    believed_error: float = 0.05  # e: of each clock
    lease: float = 30.0  # L
    margin: float = 1.0  # beyond a lease, before a generation opens
    poll: float = 1.0  # of the merger
    idle: float = 5.0  # without an operation, before a session says CLEAN
    pace: int = 0  # rounds between the empty feeds of an idle session; 0: each round
    active: float = 0.0  # so long after its last operation, or a head with news, an idle session tells each round; 0: `pace` rounds
    carries: bool = False  # an upload is of a cut at a round, and begins with it
    quiet: float = 0.0  # rounds are preferred from which every operation is so far away
    # clocks and the store
    clock_error: float = 0.05  # as it is
    put: float = 0.05  # median of a PUT
    get: float = 0.025
    get_many: float = 0.04  # 32 feeds at once
    # the job
    size: float = 10.0  # GB of a node's shard
    upload_min: float = 8.0  # seconds for a shard
    upload_max: float = 20.0
    period: float = 60.0  # between checkpoints
    gap: float = 0.002  # a collective
    restart: float = 3.0
    start_skew: float = 5.0  # between the processes of a job
    logs: float = 0.05  # share of nodes that log to the mount while a checkpoint is saved
    lost_rounds: float = 0.2  # share of rounds that such a node loses
    # faults
    fault_every: float = 0.0  # mean; 0: none
    cut_max: float = 3.0  # leases that a node is cut off from the store

    def has(self, planted):
        return planted in self.planted

    @property
    def hold(self):
        """Half of the hold window."""
        return 0.0 if self.has("no-window") else self.believed_error

    @property
    def real_clock_error(self):
        return 0.2 if self.has("wrong-clocks") else self.clock_error


def real(**others):
    """10 GB a node, a checkpoint a minute."""
    return Settings(**others)


def small(**others):
    """20 MB a node in a fraction of a second: many more cuts near the marker."""
    return Settings(**{**dict(round_length=1.0, size=0.02, upload_min=0.05, upload_max=0.6, period=8.0, lease=10.0), **others})


def product(settings):
    """As it is built: no marks; uploads are of cuts at rounds; active nodes tell each round, and are that for a shorter time where many
    write; they look for heads beside the lease."""
    return dataclasses.replace(without_marks(settings), carries=True, active=60.0 if settings.nodes <= FEW else 10.0, margin=2.0)


def without_marks(settings):
    """The version that is built first: a session counts from its first operation on, and publishes an empty feed now and then while it is idle."""
    return dataclasses.replace(settings, idle=float("inf"), pace=5)
