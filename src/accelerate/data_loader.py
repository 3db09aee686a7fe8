"""The door to the prepared data loaders and samplers, whose home is `accelerate.data`."""

from accelerate.compat.doors import door

HOMES = {
    "accelerate.compat.probes": [
        "is_datasets_available",
        "is_torchdata_stateful_dataloader_available",
    ],
    "accelerate.compat.versions": [
        "compare_versions",
        "is_torch_version",
    ],
    "accelerate.data.adapter": [
        "DataLoaderAdapter",
        "DataLoaderStateMixin",
    ],
    "accelerate.data.dispatch": ["DataLoaderDispatcher"],
    "accelerate.data.prepare": ["prepare_data_loader"],
    "accelerate.data.rounds": ["BatchSamplerShard"],
    "accelerate.data.samplers": [
        "get_sampler",
        "SeedableRandomSampler",
        "SkipBatchSampler",
    ],
    "accelerate.data.shard": ["DataLoaderShard"],
    "accelerate.data.skip": [
        "skip_first_batches",
        "SkipDataLoader",
    ],
    "accelerate.data.streams": ["IterableDatasetShard"],
    "accelerate.devices.support": ["is_torch_xla_available"],
    "accelerate.logging": ["get_logger"],
    "accelerate.modules.batch": [
        "concatenate",
        "find_batch_size",
        "get_data_structure",
        "initialize_tensors",
        "slice_tensors",
    ],
    "accelerate.modules.nested": ["send_to_device"],
    "accelerate.options.enums": [
        "DistributedType",
        "RNGType",
    ],
    "accelerate.runtime.collectives": [
        "broadcast",
        "broadcast_object_list",
    ],
    "accelerate.runtime.rng": ["synchronize_rng_states"],
    "accelerate.state": [
        "GradientState",
        "PartialState",
    ],
}

__getattr__, __dir__, __all__ = door(__name__, HOMES)
