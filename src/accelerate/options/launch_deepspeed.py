"""What `accelerate launch` can be told about DeepSpeed. A part of LaunchPlan (options/launch.py)."""

from dataclasses import dataclass

from accelerate.options.field import option

__all__ = ["DeepSpeedLaunch"]

_GROUP = "DeepSpeed Arguments"
_SECTION = "deepspeed_config."
_DEVICES = ("none", "cpu", "nvme")
_TRUTH = ("true", "false")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class DeepSpeedLaunch:
    """Options of DeepSpeed; what is None is left to DeepSpeed's own file or to the plugin."""

    deepspeed_config_file: str | None = option(
        None,
        flag="--deepspeed_config_file",
        env="ACCELERATE_DEEPSPEED_CONFIG_FILE",
        key=_SECTION + "deepspeed_config_file",
        group=_GROUP,
        type=str,
        question="Path of DeepSpeed's JSON file?",
        help="DeepSpeed's own JSON file. What it says must not be said in another place too.",
    )
    zero_stage: int | None = option(
        None,
        flag="--zero_stage",
        env="ACCELERATE_DEEPSPEED_ZERO_STAGE",
        key=_SECTION + "zero_stage",
        group=_GROUP,
        values=(0, 1, 2, 3),
        type=int,
        question="ZeRO stage (0 shards nothing, 1 optimizer states, 2 also gradients, 3 also parameters)?",
        help="What ZeRO shards: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters.",
    )
    offload_optimizer_device: str | None = option(
        None,
        flag="--offload_optimizer_device",
        env="ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
        key=_SECTION + "offload_optimizer_device",
        group=_GROUP,
        values=_DEVICES,
        type=str,
        question="Where shall optimizer states be kept?",
        help="Where optimizer states are kept, from stage 2 on: none (the device), cpu or nvme.",
    )
    offload_param_device: str | None = option(
        None,
        flag="--offload_param_device",
        env="ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
        key=_SECTION + "offload_param_device",
        group=_GROUP,
        values=_DEVICES,
        type=str,
        question="Where shall parameters be kept?",
        help="Where parameters are kept, in stage 3: none (the device), cpu or nvme.",
    )
    offload_optimizer_nvme_path: str | None = option(
        None,
        flag="--offload_optimizer_nvme_path",
        env="ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
        key=_SECTION + "offload_optimizer_nvme_path",
        group=_GROUP,
        type=str,
        question="Folder on nvme for optimizer states?",
        help="Folder for optimizer states on nvme.",
    )
    offload_param_nvme_path: str | None = option(
        None,
        flag="--offload_param_nvme_path",
        env="ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
        key=_SECTION + "offload_param_nvme_path",
        group=_GROUP,
        type=str,
        question="Folder on nvme for parameters?",
        help="Folder for parameters on nvme.",
    )
    gradient_accumulation_steps: int | None = option(
        None,
        flag="--gradient_accumulation_steps",
        env="ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
        key=_SECTION + "gradient_accumulation_steps",
        group=_GROUP,
        type=int,
        question="How many micro-batches to an optimizer step?",
        help="Micro-batches to an optimizer step, with DeepSpeed.",
    )
    gradient_clipping: float | None = option(
        None,
        flag="--gradient_clipping",
        env="ACCELERATE_GRADIENT_CLIPPING",
        key=_SECTION + "gradient_clipping",
        group=_GROUP,
        type=float,
        question="Largest norm of the gradients?",
        help="Largest norm of the gradients, with DeepSpeed.",
    )
    zero3_init_flag: str | None = option(
        None,
        flag="--zero3_init_flag",
        env="ACCELERATE_DEEPSPEED_ZERO3_INIT",
        key=_SECTION + "zero3_init_flag",
        group=_GROUP,
        values=_TRUTH,
        type=str,
        question="Build models in shards from the start (zero.Init)?",
        help="true: models are built in shards from the start. Default: in stage 3.",
    )
    zero3_save_16bit_model: str | None = option(
        None,
        flag="--zero3_save_16bit_model",
        env="ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
        key=_SECTION + "zero3_save_16bit_model",
        group=_GROUP,
        values=_TRUTH,
        type=str,
        question="Gather the 16-bit weights when the model is saved?",
        help="true: stage 3 gathers the 16-bit weights when the model is saved.",
    )
    deepspeed_hostfile: str | None = option(
        None,
        flag="--deepspeed_hostfile",
        key=_SECTION + "deepspeed_hostfile",
        group=_GROUP,
        type=str,
        question="Path of DeepSpeed's list of machines?",
        help="DeepSpeed's list of machines and slots.",
    )
    deepspeed_exclusion_filter: str | None = option(
        None,
        flag="--deepspeed_exclusion_filter",
        key=_SECTION + "deepspeed_exclusion_filter",
        group=_GROUP,
        type=str,
        question="Machines and slots to leave out, as in host1:0,2@host2?",
        help="Machines and slots of the list to leave out, as in host1:0,2@host2.",
    )
    deepspeed_inclusion_filter: str | None = option(
        None,
        flag="--deepspeed_inclusion_filter",
        key=_SECTION + "deepspeed_inclusion_filter",
        group=_GROUP,
        type=str,
        question="Machines and slots to use, as in host1:0,2@host2?",
        help="The only machines and slots of the list to use, as in host1:0,2@host2.",
    )
    deepspeed_multinode_launcher: str | None = option(
        None,
        flag="--deepspeed_multinode_launcher",
        key=_SECTION + "deepspeed_multinode_launcher",
        group=_GROUP,
        values=("pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"),
        type=str,
        question="How are other machines reached?",
        help="How other machines are reached: pdsh (default), openmpi, mvapich, mpich, nossh or slurm; "
        "standard: each machine starts its own part.",
    )
    deepspeed_moe_layer_cls_names: str | None = option(
        None,
        flag="--deepspeed_moe_layer_cls_names",
        env="ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
        key=_SECTION + "deepspeed_moe_layer_cls_names",
        group=_GROUP,
        type=str,
        question="Class names of the mixture-of-experts layers, separated by commas?",
        help="Class names of mixture-of-experts layers, separated by commas: they are not split.",
    )
