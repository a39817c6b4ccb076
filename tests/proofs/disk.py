"""A model of what a disk holds when the power goes: which of the operations since the last syncs have reached it.

It is as hostile as POSIX allows, within these assumptions:

- A sector of 512 bytes is written whole or not at all.
- What the system writes back is what it holds in memory then: of a sector that was written several times since its
  file's last sync, the disk has any of these versions, or the synced one, but never a later write without an earlier
  one to the same sector. Sectors do not wait for one another, nor for those of other files.
- The size of a file goes its own way: a file may have its new size and none of the bytes (they are zeros), or all of
  the bytes and its old size (so they are not seen). What a truncation cut off is gone once the size is.
- A rename and an exchange are atomic. Other than that, changes of names do not wait for one another, also not those
  of one directory: a rename may have reached the disk without the creation before it.
- A sync of a file makes its content and size durable, but not its name. A sync of a directory makes all that happened
  to the names in it durable, of a rename those of the directory it leads to.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.proofs.door import Operation
from tests.proofs.sparse import SECTOR, Sectors, content_hash, read_sectors, write_sectors

_ZEROS = bytes(SECTOR)


@dataclass(eq=False)
class File:
    """A file: what is durable, and each later version of its size and of each sector, with the operation it came of."""

    n_bytes: int = 0
    sectors: Sectors = field(default_factory=dict)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    versions: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    cuts: list[tuple[int, int]] = field(
        default_factory=list
    )  # truncations that made it shorter: operation, size

    def size(self) -> int:
        """Return its size as programs see it."""
        return self.sizes[-1][1] if self.sizes else self.n_bytes

    def sector(self, number: int) -> bytes:
        """Return a sector as programs see it."""
        later = self.versions.get(number)
        return later[-1][1] if later else self.sectors.get(number, _ZEROS)

    def write(self, operation: int, data: bytes, offset: int) -> None:
        """Note a write."""
        at = 0
        while at < len(data):
            number, begin = divmod(offset + at, SECTOR)
            part = data[at : at + SECTOR - begin]
            old = self.sector(number)
            new = old[:begin] + part + old[begin + len(part) :]
            self.versions.setdefault(number, []).append((operation, new))
            at += len(part)
        if offset + len(data) > self.size():
            self.sizes.append((operation, offset + len(data)))

    def truncate(self, operation: int, n_bytes: int) -> None:
        """Note a change of size."""
        if n_bytes < self.size():
            self.cuts.append((operation, n_bytes))
            for number in {*self.sectors, *self.versions}:
                keep = min(max(n_bytes - number * SECTOR, 0), SECTOR)
                old = self.sector(number)
                new = old[:keep].ljust(SECTOR, b"\0")
                if new != old:
                    self.versions.setdefault(number, []).append((operation, new))
        self.sizes.append((operation, n_bytes))

    def sync(self) -> None:
        """Make everything durable."""
        self.n_bytes = self.size()
        self.sectors = {number: self.sector(number) for number in {*self.sectors, *self.versions}}
        self.sizes, self.versions, self.cuts = [], {}, []


@dataclass(eq=False)
class Directory:
    """A directory: its durable names; the later changes are the disk's."""

    names: dict[str, File | Directory] = field(default_factory=dict)


Node = File | Directory


@dataclass(frozen=True, eq=False)
class NameChange:
    """A change of names that reaches the disk whole or not at all: what each name then leads to."""

    operation: int
    names: tuple[tuple[Directory, str, Node | None], ...]
    durable_with: Directory


#: One thing that may or may not have reached the disk: the operations it may have reached it with, in order.
Unsynced = tuple[str, object, tuple[int, ...]]


class Disk:
    """The model: operations go in, and at any moment what the disk may hold comes out.

    Parameters
    ----------
    root : pathlib.Path
        The directory to begin with, all of it durable.
    """

    def __init__(self, root: Path) -> None:
        self.root = self._load(root)
        self.changes: list[NameChange] = []
        self._files: list[tuple[str, File]] = []
        self._number = -1

    def _load(self, path: Path) -> Directory:
        directory = Directory()
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                directory.names[entry.name] = self._load(Path(entry.path))
            else:
                directory.names[entry.name] = File(*read_sectors(Path(entry.path)))
        return directory

    def apply(self, operation: Operation) -> None:
        """Take the next operation in."""
        self._number += 1
        kind, path = operation.kind, operation.path
        if kind == "write":
            self._file(path).write(self._number, operation.data, operation.offset)
        elif kind == "truncate":
            self._file(path).truncate(self._number, operation.offset)
        elif kind == "fsync":
            self._sync(path)
        elif kind == "create":
            self._rename((path, File()))
        elif kind == "mkdir":
            self._rename((path, Directory()))
        elif kind in ("unlink", "rmdir"):
            self._know(path)
            self._rename((path, None))
        elif kind == "rename":
            self._know(operation.target)
            self._rename((operation.target, self._node(path)), (path, None))
        elif kind == "exchange":
            self._rename((operation.target, self._node(path)), (path, self._node(operation.target)))
        else:
            raise AssertionError(f"an operation that the model does not know: {operation}")

    def _names(self, directory: Directory) -> dict[str, Node]:
        """Return the names in a directory as programs see them."""
        names = dict(directory.names)
        for change in self.changes:
            _set_names(names, directory, change)
        return names

    def _node(self, path: str) -> Node:
        node: Node = self.root
        for name in Path(path).parts:
            assert isinstance(node, Directory), path
            node = self._names(node)[name]
        return node

    def _know(self, path: str) -> None:
        """Remember a file that is about to lose its name: it may be open, and written to."""
        node = self._names(self._parent(path)).get(os.path.basename(path))
        if isinstance(node, File):
            self._files.append((path, node))

    def _parent(self, path: str) -> Directory:
        parent = self._node(os.path.dirname(path))
        assert isinstance(parent, Directory), path
        return parent

    def _file(self, path: str) -> File:
        # The system says so of a file that is open and has no name any more.
        if path.endswith(" (deleted)"):
            return next(file for name, file in reversed(self._files) if f"{name} (deleted)" == path)
        node = self._node(path)
        assert isinstance(node, File), path
        return node

    def _rename(self, *names: tuple[str, Node | None]) -> None:
        places = [(self._parent(path), os.path.basename(path), node) for path, node in names]
        self.changes.append(NameChange(self._number, tuple(places), places[0][0]))

    def _sync(self, path: str) -> None:
        node = self._file(path) if path.endswith(" (deleted)") else self._node(path)
        if isinstance(node, File):
            node.sync()
            return
        rest = []
        for change in self.changes:
            if change.durable_with is node:
                for directory, _, _ in change.names:
                    _set_names(directory.names, directory, change)
            else:
                rest.append(change)
        self.changes = rest

    def unsynced(self) -> list[Unsynced]:
        """Return everything that may or may not have reached the disk, with the operations that each came of."""
        found: list[Unsynced] = [("name", change, (change.operation,)) for change in self.changes]
        seen: set[int] = set()
        for node in self._all_files():
            if id(node) in seen:
                continue
            seen.add(id(node))
            if node.sizes:
                found.append(("size", node, tuple(operation for operation, _ in node.sizes)))
            for number, versions in node.versions.items():
                found.append(("sector", (node, number), tuple(operation for operation, _ in versions)))
        return found

    def _all_files(self) -> Iterator[File]:
        """Iterate over every file that a crash may leave under some name."""
        nodes: list[Node | None] = [
            self.root,
            *(node for change in self.changes for _, _, node in change.names),
        ]
        while nodes:
            node = nodes.pop()
            if isinstance(node, File):
                yield node
            elif isinstance(node, Directory):
                nodes.extend(node.names.values())

    def after(self, unsynced: Sequence[Unsynced], reached: Sequence[int]) -> Tree:
        """Return what the disk holds when of each unsynced thing so many of its operations have reached it."""
        count = {_key(what): n for (_, what, _), n in zip(unsynced, reached, strict=True)}
        chosen = [change for change in self.changes if count.get(id(change), 0)]
        tree: Tree = {}
        self._fill(tree, "", self.root, chosen, count)
        return tree

    def _fill(
        self, tree: Tree, path: str, directory: Directory, chosen: list[NameChange], count: dict[object, int]
    ) -> None:
        names = dict(directory.names)
        for change in chosen:
            _set_names(names, directory, change)
        for name, node in names.items():
            place = os.path.join(path, name)
            if isinstance(node, Directory):
                tree[place] = None
                self._fill(tree, place, node, chosen, count)
            else:
                tree[place] = _content(node, count)


#: What a disk holds: size and sectors of each file by its path, None for a directory.
Tree = dict[str, tuple[int, Sectors] | None]


def _key(what: object) -> object:
    return (id(what[0]), what[1]) if isinstance(what, tuple) else id(what)


def _set_names(names: dict[str, Node], directory: Directory, change: NameChange) -> None:
    for place, name, node in change.names:
        if place is directory:
            if node is None:
                names.pop(name, None)
            else:
                names[name] = node


def _content(file: File, count: dict[object, int]) -> tuple[int, Sectors]:
    n_sizes = count.get(id(file), 0)
    n_bytes = file.sizes[n_sizes - 1][1] if n_sizes else file.n_bytes
    last = file.sizes[n_sizes - 1][0] if n_sizes else -1
    cut = {operation for operation, _ in file.cuts}
    sectors = dict(file.sectors)
    for number, versions in file.versions.items():
        n = count.get((id(file), number), 0)
        # A truncation zeroes what it cuts off when it reaches the disk, that is with the size.
        while n and versions[n - 1][0] in cut and versions[n - 1][0] > last:
            n -= 1
        if n:
            sectors[number] = versions[n - 1][1]
    for operation, size in file.cuts:
        if operation <= last:
            for number in list(sectors):
                written = file.versions.get(number, [])
                n = count.get((id(file), number), 0)
                if not (n and written[n - 1][0] >= operation):
                    keep = min(max(size - number * SECTOR, 0), SECTOR)
                    sectors[number] = sectors[number][:keep].ljust(SECTOR, b"\0")
    return n_bytes, {
        number: sector for number, sector in sectors.items() if number * SECTOR < n_bytes and any(sector)
    }


def tree_hash(tree: Tree) -> str:
    """Return a hash of what a disk holds."""
    lines = [f"{path} {content_hash(*held) if held else 'directory'}" for path, held in sorted(tree.items())]
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def write_tree(tree: Tree, root: Path) -> None:
    """Make a directory of what a disk holds."""
    root.mkdir()
    for path, held in sorted(tree.items()):
        if held is None:
            (root / path).mkdir()
        else:
            write_sectors(root / path, *held)
