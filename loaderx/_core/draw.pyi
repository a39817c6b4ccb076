from collections.abc import Callable
from typing import Any, final

@final
class Draws:
    def __new__(
        cls,
        empty: Callable[..., Any],
        empty_arguments: tuple[Any, ...],
        as_step: Callable[[Any], int],
        refuse: Callable[[Any], Any],
        *,
        mode: int,
        length: int,
        seed: int,
        batch_length: int,
        global_batch: int,
        first: int,
        steps_per_cycle: int,
        num_steps: int,
    ) -> Draws: ...
    @property
    def step(self) -> int: ...
    def next(self) -> Any: ...
    def indices(self, step: Any, out: Any = None) -> Any: ...
    def seek(self, step: Any) -> None: ...

def kernels() -> tuple[str, ...]: ...
def kernel() -> str: ...
def use_kernel(name: str | None) -> None: ...
