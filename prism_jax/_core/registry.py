"""Registry: the things of one kind by name, those that ship with the package and those that a caller adds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from ..errors import PrismError, SpecError
from ..hints import did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Items by name, in the order in which they were added.

    Args:
        kind: what an item is, for messages: "schedule".
        shipped: makes the items of the package, called on first use; every item has a `name`, or `name_of` says it.
        error: raised where a name is unknown or taken.

    Example:
        >>> numbers = Registry("number", name_of=lambda item: item)
        >>> numbers.add("one")
        'one'
        >>> numbers.names
        ('one',)
    """

    def __init__(
        self,
        kind: str,
        shipped: Callable[[], Iterable[T]] = tuple,
        *,
        name_of: Callable[[T], str] = lambda item: item.name,  # type: ignore[attr-defined]
        error: type[PrismError] = SpecError,
    ) -> None:
        self.kind = kind
        self._shipped: Callable[[], Iterable[T]] | None = shipped
        self._name_of = name_of
        self._error = error
        self._items: dict[str, T] = {}

    def add(self, item: T) -> T:
        """Adds `item` and returns it, so that it can decorate a class or follow a definition.

        Raises:
            PrismError: the name is taken.
        """
        items, name = self._loaded(), self._name_of(item)
        if name in items:
            raise self._error(f"a {self.kind} called {name!r} is there already. Give yours another name.")
        items[name] = item
        return item

    @contextmanager
    def with_item(self, item: T) -> Iterator[T]:
        """`item` is known inside the block only."""
        self.add(item)
        try:
            yield item
        finally:
            del self._items[self._name_of(item)]

    def named(self, name: str) -> T:
        """The item called `name`.

        Raises:
            PrismError: there is none; names those that are.
        """
        items = self._loaded()
        if name not in items:
            raise self._error(f"{self.kind} {name!r} is unknown{did_you_mean(name, items)}")
        return items[name]

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._loaded())

    def __contains__(self, name: object) -> bool:
        return name in self._loaded()

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._loaded().values()))

    def __len__(self) -> int:
        return len(self._loaded())

    def _loaded(self) -> dict[str, T]:
        if self._shipped is not None:
            shipped, self._shipped = self._shipped, None
            for item in shipped():
                self._items[self._name_of(item)] = item
        return self._items
