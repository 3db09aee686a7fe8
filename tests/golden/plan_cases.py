"""Command lines and configuration files whose plans are kept as text in plans/. Read by plan_text.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from accelerate.launching.machine import Machine

__all__ = ["CASES", "Case"]


# Host files of MPI: name -> text.
_HOST_FILES = {"hosts": "node1 slots=4\nnode2 slots=4\n", "here": "localhost\n"}

_JOB = {
    "SLURM_JOB_ID": "1234",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_JOB_CPUS_PER_NODE": "64(x2)",
    "SLURM_NODEID": "0",
    "SLURM_PROCID": "0",
}
_STEP = {
    **_JOB,
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_NODEID": "1",
    "SLURM_PROCID": "1",
}
_TASKS = {**_STEP, "SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_TASKS_PER_NODE": "8(x2)", "SLURM_PROCID": "9"}


def _machine(gpus: int, cores: int = 16, ports: tuple[int, ...] = ()) -> Machine:
    evidence = f"{gpus} made-up GPUs" if gpus else "no GPU device under /dev"
    return Machine(
        installed_gpus=gpus,
        gpus=gpus,
        evidence=evidence,
        cores=cores,
        port_in_use=lambda port: port in ports,
        read_text=_HOST_FILES.get,
        find_mpi=lambda: "openmpi",
    )


MACHINES: Mapping[str, Machine] = {
    "no GPU": _machine(0),
    "1 GPU": _machine(1),
    "4 GPUs": _machine(4),
    "8 GPUs": _machine(8),
    "8 GPUs, port 29500 in use": _machine(8, ports=(29500,)),
}


@dataclass(frozen=True)
class Case:
    """One launch.

    Attributes:
        arguments: what is typed after `accelerate launch`.
        machine: name of a machine in `MACHINES`.
        file: configuration file in configs/, as by `--config_file`.
        environ: variables of the caller.
    """

    arguments: str
    machine: str = "no GPU"
    file: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)


CASES: Mapping[str, Case] = {
    # One process, or as many as there are devices.
    "plain": Case("train.py --lr 0.1"),
    "plain_1_gpu": Case("train.py", "1 GPU"),
    "plain_4_gpus": Case("train.py", "4 GPUs"),
    "cpu": Case("--cpu train.py", "4 GPUs"),
    "cpu_2": Case("--cpu --num_processes 2 train.py"),
    "cpu_too_many": Case("--num_processes 3 train.py"),
    "multi_gpu": Case("--multi_gpu train.py", "4 GPUs"),
    "multi_gpu_1": Case("--multi_gpu --num_processes 1 train.py", "4 GPUs"),
    "multi_gpu_none": Case("--multi_gpu train.py"),
    "gpu_ids": Case("--gpu_ids 1,3 train.py", "4 GPUs"),
    "gpu_ids_wrong": Case("--gpu_ids 1,9 train.py", "4 GPUs"),
    "more_processes_than_gpus": Case("--num_processes 8 train.py", "4 GPUs"),
    "module": Case("-m --debug -q package.train --lr 1"),
    "program": Case("--no_python ./train.sh 'two words'"),
    "threads": Case("--num_cpu_threads_per_process 3 --enable_cpu_affinity train.py", "4 GPUs"),
    "threads_of_the_caller": Case("--cpu --num_processes 2 train.py", environ={"OMP_NUM_THREADS": "5"}),
    "caller_decides_nothing": Case(
        "train.py",
        "4 GPUs",
        environ={"ACCELERATE_MIXED_PRECISION": "fp16", "ACCELERATE_USE_FSDP": "true", "WORLD_SIZE": "9"},
    ),
    "dashes": Case("--num-processes 2 --mixed-precision bf16 --multi-gpu train.py", "4 GPUs"),
    "elastic": Case(
        "--cpu --num_processes 2 --max_restarts 3 --monitor_interval 0.5 --tee 3 --log_dir logs "
        "--role worker --main_process_port 0 train.py"
    ),
    "dynamo": Case("--dynamo_backend inductor --dynamo_mode max-autotune --dynamo_use_fullgraph train.py"),
    "exclusive": Case("--cpu --multi_gpu -m --no_python --num_processes 0 --tee 9 train", "4 GPUs"),
    # Several machines.
    "machines": Case(
        "--num_machines 2 --machine_rank 1 --main_process_ip 10.0.0.1 --mixed_precision bf16 train.py",
        "8 GPUs",
    ),
    "machines_c10d": Case(
        "--num_machines 2 --rdzv_backend c10d --main_process_ip 10.0.0.1 --main_process_port 29400 "
        "--rdzv_conf timeout=60 train.py",
        "8 GPUs",
    ),
    "machines_preflight": Case(
        "--num_machines 2 --machine_rank 0 --main_process_ip 10.0.0.1 --num_processes 4 --cpu "
        "--preflight --rdzv_conf keep_alive_interval=2 --max_restarts 2 --grace_period 60 train.py"
    ),
    "machines_rdzv_wrong": Case(
        "--num_machines 2 --machine_rank 0 --main_process_ip 10.0.0.1 --cpu --rdzv_backend etcd "
        "--rdzv_conf timeout=soon --num_processes 2 train.py"
    ),
    "prefixes": Case("--cpu --num_processes 2 --log_prefix always --grace_period 0 train.py"),
    "grace_period_wrong": Case("--cpu --num_processes 2 --grace_period -1 train.py"),
    "machines_nothing_said": Case("--num_machines 2 train.py", "8 GPUs"),
    "machines_rank_too_high": Case(
        "--num_machines 2 --machine_rank 2 --main_process_ip 10.0.0.1 train.py", "8 GPUs"
    ),
    "machines_port_in_use": Case(
        "--num_machines 2 --machine_rank 0 --main_process_ip 10.0.0.1 train.py", "8 GPUs, port 29500 in use"
    ),
    "machines_uneven": Case(
        "--num_machines 3 --machine_rank 0 --main_process_ip a --num_processes 8 train.py", "8 GPUs"
    ),
    "machines_too_many_processes": Case(
        "--num_machines 2 --machine_rank 0 --main_process_ip a --num_processes 16 train.py", "4 GPUs"
    ),
    # Machines that something else knows: mpirun's list, a SLURM job.
    "mpi": Case("--cpu --mpirun_hostfile hosts train.py --lr 0.1"),
    "mpi_more_processes": Case("--mpirun_hostfile hosts --num_processes 16 --main_process_port 1 train.py"),
    "mpi_here": Case("--cpu --mpirun_hostfile here --num_processes 4 -m package.train"),
    "mpi_intel": Case("--cpu --mpirun_hostfile hosts --mpirun_kind intel train.py"),
    "mpi_mvapich": Case("--cpu --mpirun_hostfile hosts --mpirun_kind mvapich train.py"),
    "mpi_uneven": Case("--cpu --mpirun_hostfile hosts --num_processes 3 train.py"),
    "slurm_job": Case("--mixed_precision bf16 train.py --lr 0.1", environ=_JOB),
    "slurm_step": Case("train.py", "8 GPUs", environ=_STEP),
    "slurm_rank": Case("train.py", "8 GPUs", environ=_TASKS),
    "slurm_rank_on_cpu": Case("--cpu train.py", environ=_TASKS),
    "slurm_by_hand": Case(
        "--num_machines 2 --machine_rank 1 --main_process_ip gpu07 train.py", "8 GPUs", environ=_STEP
    ),
    "slurm_ignored": Case("--slurm no train.py", "8 GPUs", environ=_JOB),
    "slurm_nowhere": Case("--slurm node train.py", "8 GPUs"),
    "slurm_file_for_one_machine": Case("train.py", "4 GPUs", "default_json.json", environ=_STEP),
    # Engines.
    "fsdp": Case("--use_fsdp train.py", "4 GPUs"),
    "fsdp_on_cpu": Case("--use_fsdp --cpu --num_processes 2 train.py"),
    "fsdp1_asked": Case("--use_fsdp --fsdp_version 1 train.py", "4 GPUs"),
    "fsdp1_by_flag": Case("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP train.py", "4 GPUs"),
    "fsdp_value": Case(
        "--use_fsdp --fsdp_offload_params maybe --fsdp_auto_wrap_policy ALL train.py", "4 GPUs"
    ),
    "two_engines": Case("--use_fsdp --use_deepspeed train.py", "4 GPUs"),
    "deepspeed": Case("--use_deepspeed --zero_stage 3 --offload_param_device cpu train.py", "4 GPUs"),
    "deepspeed_hosts": Case(
        "--use_deepspeed --deepspeed_hostfile hosts --deepspeed_multinode_launcher openmpi --num_machines 2 "
        "--num_processes 16 train.py",
        "8 GPUs",
    ),
    "deepspeed_standard": Case(
        "--use_deepspeed --deepspeed_multinode_launcher standard --num_machines 2 --machine_rank 1 "
        "--main_process_ip 10.0.0.1 train.py",
        "8 GPUs",
    ),
    "deepspeed_nossh": Case(
        "--use_deepspeed --deepspeed_multinode_launcher nossh --deepspeed_hostfile hosts --num_machines 2 "
        "--machine_rank 1 --main_process_ip 10.0.0.1 -m package.train",
        "8 GPUs",
    ),
    "megatron": Case(
        "--use_megatron_lm --megatron_lm_tp_degree 2 --megatron_lm_no_load_optim false t.py", "4 GPUs"
    ),
    "parallelism_without_fsdp": Case(
        "--use_parallelism_config --parallelism_config_tp_size 2 train.py", "4 GPUs"
    ),
    "fp8": Case("--mixed_precision fp8 --fp8_backend ao --fp8_pad_inner_dim false train.py", "1 GPU"),
    "options_of_no_engine": Case("--zero_stage 2 --fsdp_version 2 --fp8_margin 1 train.py"),
    "tpu": Case("--tpu --num_processes 8 --main_training_function main train.py"),
    "tpu_bf16": Case("--tpu --num_processes 8 --mixed_precision bf16 --downcast_bf16 train.py"),
    # Configuration files.
    "file_json": Case("train.py", "4 GPUs", "default_json.json"),
    "file_json_as_yaml": Case("train.py", "4 GPUs", "json_as_yaml.yaml"),
    "file_and_flags": Case("--num_processes 2 --mixed_precision no train.py", "4 GPUs", "default_json.json"),
    "file_and_cpu": Case("--cpu train.py", "4 GPUs", "default_json.json"),
    "file_and_another_engine": Case("--multi_gpu train.py", "8 GPUs", "trl/fsdp2.yaml"),
    "file_too_many_processes": Case("train.py", "1 GPU", "default_json.json"),
    "file_empty": Case("train.py", "4 GPUs", "empty.yaml"),
    "file_precision_only": Case("train.py", "4 GPUs", "precision_only.yaml"),
    "file_unquoted_no": Case("train.py", "4 GPUs", "unquoted_no.yaml"),
    "file_no_and_processes": Case("--num_processes 4 train.py", "4 GPUs", "unquoted_no.yaml"),
    "file_legacy_fp16": Case("train.py", "4 GPUs", "legacy_fp16.yaml"),
    "file_legacy_dynamo": Case("train.py", "1 GPU", "legacy_dynamo.yaml"),
    "file_obeyed_top_level": Case("train.py", "4 GPUs", "obeyed_top_level.yaml"),
    "file_cpu_ranks": Case("train.py", "4 GPUs", "cpu_ranks.yaml"),
    "file_mpi": Case("train.py", "no GPU", "mpi.yaml"),
    "file_fsdp_short_keys": Case("train.py", "4 GPUs", "fsdp_short_keys.yaml"),
    "file_fsdp1_by_key": Case("train.py", "4 GPUs", "fsdp1_by_key.yaml"),
    "file_parallelism": Case("train.py", "8 GPUs", "parallelism.yaml"),
    "file_deepspeed_json": Case("train.py", "4 GPUs", "deepspeed_json.yaml"),
    "file_deepspeed_hosts": Case("train.py --lr 1", "8 GPUs", "deepspeed_hosts.yaml"),
    "file_megatron": Case("train.py", "8 GPUs", "megatron.yaml"),
    "file_fp8": Case("train.py", "4 GPUs", "fp8.yaml"),
    "file_dynamo": Case("train.py", "1 GPU", "dynamo.yaml"),
    "file_tpu": Case("train.py", "no GPU", "tpu.yaml"),
    "file_xpu": Case("train.py", "no GPU", "xpu.yaml"),
    "file_sagemaker": Case("train.py --lr 0.1", "no GPU", "sagemaker.yaml"),
    "file_mistakes": Case("train.py", "4 GPUs", "mistakes.yaml"),
    # What trl ships.
    "trl_single_gpu": Case("sft.py", "8 GPUs", "trl/single_gpu.yaml"),
    "trl_single_gpu_more_processes": Case("--num_processes 2 sft.py", "8 GPUs", "trl/single_gpu.yaml"),
    "trl_multi_gpu": Case("sft.py", "8 GPUs", "trl/multi_gpu.yaml"),
    "trl_fsdp1": Case("sft.py", "8 GPUs", "trl/fsdp1.yaml"),
    "trl_fsdp2": Case("sft.py", "8 GPUs", "trl/fsdp2.yaml"),
    "trl_zero1": Case("sft.py", "8 GPUs", "trl/zero1.yaml"),
    "trl_zero2": Case("sft.py", "8 GPUs", "trl/zero2.yaml"),
    "trl_zero3": Case("sft.py", "8 GPUs", "trl/zero3.yaml"),
}
