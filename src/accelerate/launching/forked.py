"""PrepareForLaunch: what a started process does before it calls the user's function.

Called by the launchers that start functions instead of scripts (TPU, notebook, debug), in each new process.
"""

from collections.abc import Callable
from typing import Any

from accelerate.compat import env
from accelerate.options.enums import DistributedType

__all__ = ["PrepareForLaunch"]


class PrepareForLaunch:
    """A function with its place among the ranks: call it with the index of the process.

    Args:
        launcher: the user's function.
        distributed_type: how the run is distributed; XLA finds ranks by itself.
        debug: whether ranks meet over a file, with gloo (`debug_launcher`).
    """

    def __init__(
        self,
        launcher: Callable[..., Any],
        distributed_type: "DistributedType | str" = "NO",
        debug: bool = False,
    ) -> None:
        self.launcher = launcher
        self.distributed_type = DistributedType(distributed_type)
        self.debug = debug

    def __call__(self, index: int, *args: Any) -> None:
        """Put the rank into the environment of this process, and call the function.

        Args:
            index: the process, counted on this machine.
            args: passed on to the function.
        """
        if self.debug:
            self._meet_over_file(index)
        elif self.distributed_type.value.startswith("MULTI_"):
            per_machine, machine = env.get_int(["NPROC"], 1), env.get_int(["NODE_RANK"], 0)
            env.put({"LOCAL_RANK": index, "RANK": per_machine * machine + index})
        env.put({"FORK_LAUNCHED": 1})
        self.launcher(*args)

    def _meet_over_file(self, index: int) -> None:
        import torch.distributed as dist

        size = env.get_int(["WORLD_SIZE"], 1)
        # All processes of a debugging launch are on this machine.
        env.put({"RANK": index, "LOCAL_RANK": index, "LOCAL_WORLD_SIZE": size})
        store = dist.FileStore(env.get("ACCELERATE_DEBUG_RDV_FILE") or "", size)  # type: ignore[attr-defined]
        dist.init_process_group("gloo", rank=index, store=store, world_size=size)
