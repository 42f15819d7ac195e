"""Call functions before and after each step of every optimizer, in any torch since 1.13."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Takes an optimizer, and the positional and named arguments of its step.
    Hook = Callable[[Any, Any, Any], None]


def register_step_hooks(torch: Any, before: Hook, after: Hook) -> None:
    """Have both called with every optimizer that an imported torch steps from now on."""
    # torch.optim deletes its own attribute of this name.
    hooks: Any = sys.modules["torch.optim.optimizer"]
    if hasattr(hooks, "register_optimizer_step_pre_hook"):
        hooks.register_optimizer_step_pre_hook(before)
        hooks.register_optimizer_step_post_hook(after)
    else:
        _wrap_steps(torch.optim.Optimizer, before, after)


def _wrap_steps(base: Any, before: Hook, after: Hook) -> None:
    """Wrap the step of each optimizer's class, where torch before 2.0 wraps it for its profiler."""
    original = base._hook_for_profile

    @functools.wraps(original)
    def hook_for_profile(optimizer: Any) -> None:
        original(optimizer)
        cls = type(optimizer)
        if not hasattr(cls.step, "_ddpfix_hooked"):
            cls.step = _with_hooks(cls.step, before, after)

    base._hook_for_profile = hook_for_profile


def _with_hooks(original: Callable[..., Any], before: Hook, after: Hook) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before(optimizer, args, kwargs)
        result = original(optimizer, *args, **kwargs)
        after(optimizer, args, kwargs)
        return result

    step._ddpfix_hooked = True  # type: ignore[attr-defined]
    return step
