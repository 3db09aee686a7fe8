"""The questions about this machine, or several: the decision tree of `accelerate config`.

What an answer means, and how a question reads, is declared with its option (options/launch_*.py); the tree
says which are asked, and with which default. Called by config.py.
"""

from dataclasses import dataclass, field
from typing import Any

from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.config.engines import ask_deepspeed, ask_fp8, ask_fsdp, ask_megatron, ask_parallelism
from accelerate.commands.config.interview import Interview, interview, whole_number
from accelerate.compat import env
from accelerate.launching.machine import Machine, look
from accelerate.options.enums import ComputeEnvironment, DistributedType

__all__ = ["ask_cluster", "ask_dynamo", "get_cluster_input"]

# In the order of the interface.
_KINDS = {
    "No distributed training": "NO",
    "multi-CPU": "MULTI_CPU",
    "multi-XPU": "MULTI_XPU",
    "multi-HPU": "MULTI_HPU",
    "multi-GPU": "MULTI_GPU",
    "multi-NPU": "MULTI_NPU",
    "multi-MLU": "MULTI_MLU",
    "multi-SDAA": "MULTI_SDAA",
    "multi-MUSA": "MULTI_MUSA",
    "multi-NEURON": "MULTI_NEURON",
    "TPU": "XLA",
}


def get_cluster_input() -> ClusterConfig:
    """Ask about this machine, or several, and return the configuration.

    Raises:
        ConfigurationError: standard input has ended before the last answer.
    """
    return ask_cluster(interview(), look(env.snapshot()))


@dataclass
class _Answers:
    """What was answered so far.

    Attributes:
        kind: the distributed type; an engine takes the place of what it runs on.
        values: field of ClusterConfig -> value.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)

    @property
    def on_accelerators(self) -> bool:
        """Whether several accelerators train, and no engine is chosen."""
        return self.kind.startswith("MULTI_") and self.kind != "MULTI_CPU"

    @property
    def num_machines(self) -> int:
        """The machines that take part."""
        return int(self.values.get("num_machines", 1))


def ask_cluster(ask: Interview, machine: Machine) -> ClusterConfig:
    """Go through the tree.

    Args:
        ask: puts the questions.
        machine: gives the defaults.
    """
    several = "multi-GPU" if machine.gpus > 1 else "No distributed training"
    answers = _Answers(_KINDS[ask.choose("Which kind of machine trains?", list(_KINDS), several)])
    _ask_machines(ask, answers)
    _ask_cpu(ask, answers, machine)
    dynamo = ask_dynamo(ask)
    if dynamo:
        answers.values["dynamo_config"] = dynamo
    _ask_engine(ask, answers)
    _ask_processes(ask, answers, machine)
    _ask_devices(ask, answers)
    _ask_tpu(ask, answers)
    _ask_precision(ask, answers)
    fixed = {"use_cpu": False, "debug": False, "mixed_precision": None}
    return ClusterConfig(
        compute_environment=ComputeEnvironment.LOCAL_MACHINE,
        distributed_type=DistributedType(answers.kind),
        **{**fixed, **answers.values},
    )


def _ask_machines(ask: Interview, answers: _Answers) -> None:
    if not answers.kind.startswith("MULTI_"):
        return
    values = answers.values
    values["num_machines"] = ask.text("How many machines take part?", "1", whole_number(1))
    if values["num_machines"] > 1:
        values["machine_rank"] = ask.text(
            "Which number has this machine (0: the one where the others meet)?", "0", whole_number()
        )
        values["main_process_ip"] = ask.option("main_process_ip")
        values["main_process_port"] = ask.option("main_process_port", 29500)
        values["same_network"] = ask.option("same_network", True)
        if not values["same_network"]:
            values["rdzv_backend"] = ask.option("rdzv_backend")
    else:
        values["same_network"] = True
    values["debug"] = ask.option("debug")


def _ask_cpu(ask: Interview, answers: _Answers, machine: Machine) -> None:
    if answers.kind == "NO":
        answers.values["use_cpu"] = ask.option("cpu", machine.gpus == 0)
    elif answers.kind == "MULTI_CPU":
        answers.values["use_cpu"] = True
        if ask.confirm("Start the processes with mpirun?"):
            answers.values["mpirun_config"] = {"mpirun_hostfile": ask.option("mpirun_hostfile", "~/hostfile")}


def ask_dynamo(ask: Interview) -> dict[str, Any]:
    """Return the section about torch.compile; empty where nothing is to be compiled."""
    if not ask.confirm("Compile the model with torch.compile?"):
        return {}
    section = {"dynamo_backend": ask.option("dynamo_backend", "inductor").upper()}
    if ask.confirm("Choose how it compiles (otherwise torch's defaults)?"):
        for name in (
            "dynamo_mode",
            "dynamo_use_fullgraph",
            "dynamo_use_dynamic",
            "dynamo_use_regional_compilation",
        ):
            section[name] = ask.option(name)
    return section


def _ask_engine(ask: Interview, answers: _Answers) -> None:
    """At most one engine: the first that is wanted."""
    single = answers.kind == "NO" and not answers.values.get("use_cpu")
    device = answers.kind
    if (answers.on_accelerators or single) and device != "MULTI_NEURON" and ask.confirm("Use DeepSpeed?"):
        answers.kind = "DEEPSPEED"
        answers.values["deepspeed_config"] = ask_deepspeed(ask, answers.num_machines)
    if answers.on_accelerators and ask.confirm("Use FSDP (fully sharded data parallelism)?"):
        answers.kind = "FSDP"
        section = ask_fsdp(ask)
        answers.values["fsdp_config"] = section
        if section["fsdp_version"] == 2:
            answers.values["parallelism_config"] = ask_parallelism(ask)
    if answers.kind == "MULTI_GPU" and ask.confirm("Use Megatron-LM?"):
        answers.kind = "MEGATRON_LM"
        answers.values["megatron_lm_config"] = ask_megatron(ask)


def _ask_processes(ask: Interview, answers: _Answers, machine: Machine) -> None:
    if answers.kind == "NO":
        answers.values["num_processes"] = 1
        return
    least = 2 if answers.kind == "MULTI_GPU" and answers.num_machines == 1 else 1
    here = machine.cores if answers.kind == "MULTI_CPU" else machine.gpus
    default = max(least, here * answers.num_machines)
    question = f"How many processes in all{' over all machines' if answers.num_machines > 1 else ''}?"
    answers.values["num_processes"] = ask.text(question, str(default), whole_number(least))


def _ask_devices(ask: Interview, answers: _Answers) -> None:
    if answers.values.get("use_cpu"):
        return
    if answers.on_accelerators or answers.kind == "NO":
        answers.values["gpu_ids"] = ask.option("gpu_ids", "all")
    if answers.kind in ("NO", "MULTI_GPU"):
        answers.values["enable_cpu_affinity"] = ask.option("enable_cpu_affinity")


def _ask_tpu(ask: Interview, answers: _Answers) -> None:
    if answers.kind != "XLA":
        return
    values = answers.values
    values["main_training_function"] = ask.option("main_training_function", "main")
    values["tpu_use_cluster"] = ask.option("tpu_use_cluster")
    if not values["tpu_use_cluster"]:
        return
    values["tpu_name"] = ask.option("tpu_name")
    values["tpu_zone"] = ask.option("tpu_zone")
    values["tpu_use_sudo"] = ask.option("tpu_use_sudo")
    if ask.confirm("Run commands on the machines of the pod when they start?"):
        if ask.confirm("Are they in a file?"):
            values["command_file"] = ask.text("Path of the file with the commands?")
        else:
            values["commands"] = _several(ask, "Command?")
    values["tpu_vm"] = _several(ask, "Name of a machine to run on (empty: all of the pod)?")
    values["tpu_env"] = _several(ask, "NAME=value to set on the machines (empty: none)?")


def _several(ask: Interview, question: str) -> list[str]:
    """Ask until an empty answer."""
    answers: list[str] = []
    while answer := ask.text(question if not answers else f"{question[:-1]}, one more (empty: no)?"):
        answers.append(answer)
    return answers


def _ask_precision(ask: Interview, answers: _Answers) -> None:
    if "deepspeed_config_file" in answers.values.get("deepspeed_config", {}):
        return  # DeepSpeed's own file says it
    precision = ask.option("mixed_precision", "no")
    answers.values["mixed_precision"] = precision
    if answers.kind == "XLA" and precision == "bf16":
        answers.values["downcast_bf16"] = ask.option("downcast_bf16")
    if precision == "fp8":
        answers.values["fp8_config"] = ask_fp8(ask)
