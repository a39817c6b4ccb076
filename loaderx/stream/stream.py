"""`Stream`: a lazy pipeline, put together call by call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from loaderx.store.options import check_choice, check_count, check_flag
from loaderx.stream.combining import Weights, check_ends, check_streams, plan_phases
from loaderx.stream.concatenate import Concatenate
from loaderx.stream.interleave import STOPPING, Interleave, Stopping
from loaderx.stream.iterator import StreamIterator, check_state
from loaderx.stream.node import Recipe
from loaderx.stream.origins import Origins
from loaderx.stream.shards import Shards
from loaderx.stream.source import Source
from loaderx.stream.steps import DEFAULT_SEED, Steps
from loaderx.stream.zip import Zip

_MOST_SEED = 2**63 - 1
_MOST_EPOCH = 2**62


class Stream(Origins, Steps):
    """Items of files or other sources, through a chain of steps that nothing runs until it is iterated.

    Made by one of the ``from_`` methods; each step returns another stream and leaves this one as it is.
    ``iter(stream)`` begins a pass, `StreamIterator`: each one gives the same items in the same order, until `set_epoch`
    says otherwise, and several at once do not disturb each other. A stream pickles, if its functions and sources do.

    Attributes
    ----------
    epoch : int
        The epoch of the next pass.
    num_shards : int
        Into how many parts the items can be divided by shards: those of the source; of streams behind one another their
        sum, of a mixture the least of them, for each part needs all of it, and of streams side by side 1.

    Examples
    --------
    >>> stream = Stream.from_shards([[1, 2, 3], [4, 5]]).map(lambda x: 10 * x).batch(2)
    >>> list(stream)
    [[10, 20], [30, 40], [50]]
    >>> passing = iter(stream)
    >>> next(passing)
    [10, 20]
    >>> state = passing.state_dict()  # plain JSON
    >>> stream.load_state_dict(state)
    >>> list(stream)
    [[30, 40], [50]]
    """

    def __init__(self, recipe: Recipe, epoch: int = 0) -> None:
        self._recipe = recipe
        self._epoch = epoch
        # Where the next pass begins, if not at the beginning; and the newest pass.
        self._state: dict[str, Any] | None = None
        self._newest: StreamIterator | None = None

    def _with(self, recipe: Recipe) -> Self:
        return type(self)(recipe, self._epoch)

    @classmethod
    def _of(cls, shards: Shards) -> Self:
        return cls(Recipe(Source, options={"shards": shards}, told=shards.describe()))

    @classmethod
    def interleave(
        cls,
        streams: Sequence[Stream],
        probabilities: Weights | None = None,
        seed: int = DEFAULT_SEED,
        stopping: Stopping = "first_exhausted",
    ) -> Self:
        """Return a mixture: items of several streams in turns, or each of a stream that is drawn.

        Parameters
        ----------
        streams : sequence of Stream
            A stream is exhausted with its last item, and an empty one when it is first its turn: with
            ``"first_exhausted"`` the mixture ends there, and otherwise it goes on without.
        probabilities : sequence of float, or dict of int to such, optional
            How often to draw from each stream, in proportion. A dict has them by the number of items that the mixture
            has given: ``{0: [0.9, 0.1], 10_000: [0.5, 0.5]}`` changes them behind 10,000. None: in turns.
        seed : int
            Of the draws. The order of epoch 0 is that of `datasets.interleave_datasets` with this seed.
        stopping : str
            ``"first_exhausted"``: end when a stream is exhausted. ``"all_exhausted"``: begin such a stream again, in
            another order where it is shuffled, and end when each one has been exhausted.
            ``"all_exhausted_without_replacement"``: give each item once. Streams whose probability is 0 from now on are
            not waited for; where nothing is left that the probabilities draw from, the next ones hold at once.

        Returns
        -------
        Stream
            `StreamIterator.counts` says how many items each stream has given.

        Raises
        ------
        OptionError
        """
        found = check_streams(streams, Stream)
        phases = plan_phases(probabilities, len(found))
        seed = check_count("seed", seed, most=_MOST_SEED)
        stopping = check_choice("stopping", stopping, STOPPING)
        told = {
            "probabilities": None
            if phases is None
            else [[begin, list(weights)] for begin, weights in phases],
            "seed": seed,
            "stopping": stopping,
        }
        options = {"phases": phases, "seed": seed, "stopping": stopping}
        return cls(Recipe(Interleave, _recipes(found), options, told), found[0].epoch)

    @classmethod
    def concatenate(cls, streams: Sequence[Stream]) -> Self:
        """Return all items of several streams, one stream behind the other.

        Parameters
        ----------
        streams : sequence of Stream
            Only the last one may be without end. A later `shuffle` draws their order, too.

        Returns
        -------
        Stream
        """
        found = check_streams(streams, Stream)
        recipes = _recipes(found)
        check_ends(recipes)
        return cls(Recipe(Concatenate, recipes), found[0].epoch)

    @classmethod
    def zip(cls, streams: Sequence[Stream], *, strict: bool = False) -> Self:
        """Return tuples of an item of each stream, until the first of them ends.

        Parameters
        ----------
        streams : sequence of Stream
            A later `shuffle` leaves the order of their shards alone, so that the same items stay together.
        strict : bool
            Raise `StreamError` where the streams do not end together; otherwise the rest of the longer ones is left
            out.

        Returns
        -------
        Stream
        """
        found = check_streams(streams, Stream)
        strict = check_flag("strict", strict)
        return cls(Recipe(Zip, _recipes(found), {"strict": strict}, {"strict": strict}), found[0].epoch)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def num_shards(self) -> int:
        return self._recipe.num_shards

    def set_epoch(self, epoch: int) -> None:
        """Have later passes be those of an epoch: another order of each shuffle, other draws of each mixture.

        Parameters
        ----------
        epoch : int
            Another one than before begins at its beginning, whatever state has been loaded; passes that are under way
            stay as they are. The same one changes nothing.
        """
        epoch = check_count("epoch", epoch, most=_MOST_EPOCH)
        if epoch != self._epoch:
            self._epoch, self._state, self._newest = epoch, None, None

    def __iter__(self) -> StreamIterator:
        """Begin a pass: at the state that has been loaded, if it is the first one since, or else at the beginning."""
        passing = StreamIterator(self._recipe, self._epoch, self._state)
        self._newest, self._state = passing, None
        return passing

    def state_dict(self) -> dict[str, Any]:
        """Return where the newest pass is; before the first one, where it would begin. See `StreamIterator`."""
        if self._state is not None:
            return self._state
        if self._newest is not None:
            return self._newest.state_dict()
        beginning = StreamIterator(self._recipe, self._epoch)
        try:
            return beginning.state_dict()
        finally:
            beginning.close()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass begin at a state, in its epoch. Passes that are under way stay as they are.

        Parameters
        ----------
        state : mapping
            What `state_dict` returned, of this stream or its iterator, perhaps in another process.

        Raises
        ------
        StateMismatchError
            It is of another pipeline; ``mismatches`` has both sides. That its files have changed is noticed when the
            pass begins.
        """
        check_state(state, self._recipe.describe())
        self._state = dict(state)
        self._epoch = state["epoch"]

    def __repr__(self) -> str:
        return f"<Stream {self._recipe}>"

    def __getstate__(self) -> dict[str, Any]:
        # A pass does not pickle: its state does.
        return {**self.__dict__, "_newest": None}


def _recipes(streams: Sequence[Stream]) -> tuple[Recipe, ...]:
    return tuple(stream._recipe for stream in streams)
