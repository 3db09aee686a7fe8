"""Train an ordinary PyTorch loop on any hardware: the door that users import."""

from accelerate.compat.doors import door

__version__ = "2.0.0.dev0"

HOMES = {
    "accelerate.accelerator": ["Accelerator"],
    "accelerate.big_modeling": ["cpu_offload", "disk_offload", "dispatch_model"],
    "accelerate.compat.probes": ["is_rich_available"],
    "accelerate.data.skip": ["skip_first_batches"],
    "accelerate.launching.debug": ["debug_launcher"],
    "accelerate.launching.notebook": ["notebook_launcher"],
    "accelerate.offload.user": ["cpu_offload_with_hook"],
    "accelerate.options.data": ["DataLoaderConfiguration"],
    "accelerate.options.enums": [
        "DDPCommunicationHookType",
        "DistributedType",
    ],
    "accelerate.options.fsdp": ["FullyShardedDataParallelPlugin"],
    "accelerate.options.handlers": [
        "AutocastKwargs",
        "DistributedDataParallelKwargs",
        "GradScalerKwargs",
        "InitProcessGroupKwargs",
    ],
    "accelerate.options.profile": ["ProfileKwargs"],
    "accelerate.runtime.batch_size": ["find_executable_batch_size"],
    "accelerate.runtime.rng": ["synchronize_rng_states"],
    "accelerate.state": ["PartialState"],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
