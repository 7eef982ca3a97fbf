# SPDX-License-Identifier: Apache-2.0
"""What the history knows (docs/posix.md, "When a change becomes part of the history"): the states that a power
cut may leave, oldest first, from the last barrier on."""
import collections

from model_tree import Version

# names: {name: id} of a directory; maybe: names of files that may be there already. versions: contents that may be sealed.
Record = collections.namedtuple("Record", "kind mode uid gid xattrs mtime names maybe versions target ino")


def attributes(node):
    return {
        "mode": node.mode,
        "uid": node.uid,
        "gid": node.gid,
        "xattrs": tuple(sorted(node.xattrs.items())),
        "mtime": node.set_mtime,
        "ino": node.ino,
    }


class History:
    def __init__(self, tree):
        self.tree = tree
        self.state = {}
        self.enter(tree.root)
        self.snaps = [dict(self.state)]

    def enter(self, node, **more):
        given = {"kind": node.kind, "names": {}, "maybe": {}, "versions": (), "target": node.target, **attributes(node), **more}
        self.state[node.id] = Record(**given)

    def change(self, node, **fields):
        self.state[node.id] = self.state[node.id]._replace(**fields)

    def push(self):
        self.snaps.append(dict(self.state))

    def barrier(self):
        """All that is in the history is durable."""
        del self.snaps[:-1]

    def attrs(self, node):
        """A change of attributes: at once, but for a nascent file."""
        if node.id in self.state:
            self.change(node, **attributes(node))
            self.push()

    def name(self, directory, name, node):
        """Sets or takes a name, without a push."""
        record = self.state[directory.id]
        names = {key: value for key, value in record.names.items() if key != name}
        maybe = {key: value for key, value in record.maybe.items() if key != name}
        if node is not None:
            names[name] = node.id
        self.change(directory, names=names, maybe=maybe, mtime=directory.set_mtime)

    def unname(self, directory, name, node):
        """A name is gone: no operation if the history never had it."""
        self.name(directory, name, None)
        if node.nlink == 0 or node.kind == "d":
            self.state.pop(node.id, None)
        self.push()

    def born(self, directory, name, node):
        """A directory or a link: in the history at once."""
        self.enter(node)
        self.name(directory, name, node)
        self.push()

    def place_of(self, node):
        """A nascent file has one name."""
        for _, directory, name, other in self.tree.everything():
            if other is node:
                return directory, name
        raise KeyError(node.id)

    def seal(self, node):
        """What is written becomes a version, and a nascent file part of the history."""
        if node.kind != "f" or node.nlink == 0 or not (node.nascent or node.draft):
            return
        if node.nascent:
            directory, name = self.place_of(node)
            self.enter(node)
            self.name(directory, name, node)
        self.change(node, versions=(Version(node),), mtime=node.set_mtime)
        node.nascent = node.draft = False
        self.push()

    def maybe_seal(self, nodes):
        """Each of these may be sealed by now, or be later."""
        nodes = [node for node in nodes if node.kind == "f" and node.nlink and (node.nascent or node.draft)]
        for node in nodes:
            if node.nascent:
                directory, name = self.place_of(node)
                if node.id not in self.state:
                    self.enter(node)
                self.change(directory, maybe={**self.state[directory.id].maybe, name: node.id}, mtime=None)
            versions = self.state[node.id].versions
            self.change(node, versions=versions + (Version(node),), mtime=None, ino=node.ino)
        if nodes:
            self.push()

    def settle(self, node, least):
        """What may be sealed is, with this version or one after it."""
        record = self.state.get(node.id)
        found = [at for at, version in enumerate(record.versions) if version is least] if record else []
        if not found or node.nlink == 0:
            return
        if node.nascent:
            directory, name = self.place_of(node)
            self.name(directory, name, node)
            self.change(directory, mtime=None)
            node.nascent = False
        self.change(node, versions=record.versions[found[0] :])
        self.push()

    def seal_all(self, nodes, others=()):
        """Several at once, in any order; `others` may or may not be sealed with them."""
        self.maybe_seal([*nodes, *others])
        for node in nodes:
            self.seal(node)


# ---------------------------------------------------------------- judging what is seen

def differences(state, seen, mtimes=True):
    """What keeps the tree `seen` ({path: what a worker saw there}) from being this state, one after the other."""
    todo, left, kept, inos = [("", next(iter(state)))], set(seen), {}, {}
    while todo:
        path, number = todo.pop()
        left.discard(path)
        wrong = look_at(state[number], seen[path], mtimes) or twin(inos, number, seen[path])
        if wrong:
            yield f"{path or '/'}: {wrong}"
        kept.setdefault(number, []).append(path)
        for name, below_number in {**state[number].maybe, **state[number].names}.items():
            below = f"{path}/{name}" if path else name
            if below in seen:
                todo.append((below, below_number))
            elif name in state[number].names:
                yield f"{below}: is missing"
    for path in sorted(left):
        yield f"{path}: should not be there"
    for paths in kept.values():
        if seen[paths[0]]["kind"] == "f" and seen[paths[0]]["nlink"] != len(paths):
            yield f"{paths[0]}: {seen[paths[0]]['nlink']} links, not {len(paths)}"


def twin(inos, number, look):
    """Names of one file have one inode number, others have others."""
    if inos.setdefault(look["ino"], number) != number:
        return f"inode {look['ino']} is another file, too"
    return None


def look_at(record, look, mtimes):
    for field in ("kind", "mode", "uid", "gid", "target", "ino"):
        if getattr(record, field) is not None and getattr(record, field) != look[field]:
            return f"{field} is {look[field]}, not {getattr(record, field)}"
    if record.xattrs != tuple(sorted(look["xattrs"].items())):
        return f"xattrs are {sorted(look['xattrs'])}, not {[name for name, _ in record.xattrs]} (or their values)"
    if mtimes and record.mtime is not None and record.mtime != look["mtime"]:
        return f"mtime is {look['mtime']}, not {record.mtime}"
    if record.kind == "f" and not any(version.digest == look["digest"] for version in record.versions):
        sizes = [len(version.data) for version in record.versions]
        return f"content of {look['size']} bytes is none of the versions of {sizes} bytes"
    return None
