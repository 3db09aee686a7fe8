"""The decision tree, with answers by question. test_on_screen.py is about the screen."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelerate.commands.config.cluster import ask_cluster
from accelerate.commands.config.config_args import ClusterConfig, SageMakerConfig
from accelerate.commands.config.interview import Check, Interview
from accelerate.commands.config.sagemaker import ask_sagemaker
from accelerate.launching.machine import Machine
from accelerate.launching.plan import resolve
from accelerate.options.config_file import parse

FOUR_GPUS = Machine(installed_gpus=4, gpus=4, evidence="made up", cores=8)
NO_GPU = Machine(installed_gpus=0, gpus=0, evidence="none", cores=8)


class Scripted(Interview):
    """Answers questions that hold a text; takes the default for all others; remembers what was asked."""

    def __init__(self, **answers: Any) -> None:
        self._answers = {text.replace("_", " "): answer for text, answer in answers.items()}
        self.asked: list[str] = []

    def _answer(self, question: str, default: Any) -> Any:
        self.asked.append(question)
        return next((self._answers[text] for text in self._answers if text in question), default)

    def choose(self, question: str, choices: Sequence[str], default: str) -> str:
        answer = self._answer(question, default)
        assert answer in choices
        return str(answer)

    def confirm(self, question: str, default: bool = False) -> bool:
        return bool(self._answer(question, default))

    def text(self, question: str, default: str = "", check: Check = str) -> Any:
        return check(str(self._answer(question, default)))


def config(machine: Machine = FOUR_GPUS, **answers: Any) -> tuple[ClusterConfig, list[str]]:
    ask = Scripted(**answers)
    made = ask_cluster(ask, machine)
    assert parse(made.to_dict(), "c.yaml").problems == ()
    return made, ask.asked


def test_defaults_come_from_the_machine() -> None:
    made, _ = config()
    assert (made.distributed_type.value, made.num_processes, made.gpu_ids) == ("MULTI_GPU", 4, "all")
    made, asked = config(NO_GPU)
    assert (made.distributed_type.value, made.num_processes, made.use_cpu) == ("NO", 1, True)
    assert not [question for question in asked if "GPUs" in question]
    made, _ = config(NO_GPU, kind_of_machine="multi-CPU")
    assert (made.num_processes, made.use_cpu) == (8, True)


def test_two_machines_count_twice() -> None:
    made, _ = config(How_many_machines=2, Address="10.0.0.1")
    assert (made.num_processes, made.main_process_ip, made.main_process_port) == (8, "10.0.0.1", 29500)
    assert (made.same_network, made.rdzv_backend) == (True, "static")
    made, _ = config(How_many_machines=2, Address="a", local_network=False, find_each_other="c10d")
    assert (made.same_network, made.rdzv_backend) == (False, "c10d")


def test_mpirun() -> None:
    made, _ = config(kind_of_machine="multi-CPU", processes_with_mpirun=True, for_mpirun="hosts")
    assert made.mpirun_config == {"mpirun_hostfile": "hosts"}


def test_fsdp1() -> None:
    made, _ = config(
        Use_FSDP=True, version_of_FSDP="1", Which_modules="SIZE_BASED_WRAP", Shall_only_rank=False
    )
    assert made.fsdp_config == {
        "fsdp_activation_checkpointing": False,
        "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP",
        "fsdp_backward_prefetch": "BACKWARD_PRE",
        "fsdp_cpu_ram_efficient_loading": False,
        "fsdp_forward_prefetch": False,
        "fsdp_min_num_params": 100_000_000,
        "fsdp_offload_params": False,
        "fsdp_reshard_after_forward": "FULL_SHARD",
        "fsdp_state_dict_type": "FULL_STATE_DICT",
        "fsdp_sync_module_states": True,
        "fsdp_use_orig_params": True,
        "fsdp_version": 1,
    }


def test_axes_of_parallelism() -> None:
    made, _ = config(Use_FSDP=True, Combine_axes=True, axis_of_context_parallelism=2, exchanged="alltoall")
    assert made.parallelism_config is not None
    assert made.parallelism_config["parallelism_config_cp_size"] == 2
    assert made.parallelism_config["parallelism_config_cp_comm_strategy"] == "alltoall"


def test_deepspeed_with_its_own_file_asks_for_no_precision() -> None:
    made, asked = config(Use_DeepSpeed=True, Is_there_a_JSON=True, Path_of_DeepSpeed="zero.json")
    assert made.deepspeed_config == {"deepspeed_config_file": "zero.json", "zero3_init_flag": False}
    assert made.mixed_precision is None
    assert "Which precision?" not in asked


def test_deepspeed_on_several_machines() -> None:
    made, _ = config(
        Use_DeepSpeed=True,
        How_many_machines=2,
        Address="a",
        list_of_machines="hosts",
        Leave_machines=True,
        Machines_and_slots_to_leave="a:0",
        Has_the_model=True,
        Class_names_of_the_mixture="Moe",
    )
    assert made.deepspeed_config is not None
    assert made.deepspeed_config["deepspeed_exclusion_filter"] == "a:0"
    assert made.deepspeed_config["deepspeed_moe_layer_cls_names"] == "Moe"
    made, _ = config(
        Use_DeepSpeed=True, How_many_machines=2, Address="a", Use_only=True, Machines_and_slots_to_use="b:1"
    )
    assert made.deepspeed_config is not None
    assert made.deepspeed_config["deepspeed_inclusion_filter"] == "b:1"


def test_megatron() -> None:
    made, _ = config(Megatron=True, tensor_parallelism=2, pipeline_parallelism=2, batches_to_a_step=4)
    assert made.distributed_type.value == "MEGATRON_LM"
    assert made.megatron_lm_config == {
        "megatron_lm_gradient_clipping": 1.0,
        "megatron_lm_num_micro_batches": 4,
        "megatron_lm_pp_degree": 2,
        "megatron_lm_recompute_activations": True,
        "megatron_lm_sequence_parallelism": True,
        "megatron_lm_tp_degree": 2,
        "megatron_lm_use_distributed_optimizer": True,
    }


@pytest.mark.parametrize(
    ("backend", "keys"),
    [
        ("ao", {"fp8_backend", "fp8_enable_fsdp_float8_all_gather", "fp8_pad_inner_dim"}),
        ("msamp", {"fp8_backend", "fp8_opt_level"}),
        (
            "te",
            {
                "fp8_amax_compute_algo",
                "fp8_amax_history_len",
                "fp8_backend",
                "fp8_format",
                "fp8_interval",
                "fp8_margin",
                "fp8_override_linear_precision",
                "fp8_use_autocast_during_eval",
            },
        ),
    ],
)
def test_fp8(backend: str, keys: set[str]) -> None:
    made, _ = config(Which_precision="fp8", What_shall_do_fp8=backend)
    assert made.fp8_config is not None
    assert made.fp8_config.keys() == keys
    assert made.fp8_config["fp8_backend"] == backend.upper()


def test_a_pod() -> None:
    made, _ = config(
        kind_of_machine="TPU",
        Is_this_a_TPU_pod=True,
        Name_of_the_TPU="pod",
        Zone_of="z",
        Which_precision="bf16",
        Shall_float_be=True,
    )
    assert (made.distributed_type.value, made.main_training_function) == ("XLA", "main")
    assert (made.tpu_name, made.tpu_zone, made.downcast_bf16) == ("pod", "z", True)


def test_one_process_is_not_several_gpus() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        config(How_many_processes=1)


class Chance(Scripted):
    """Answers by chance, but for text."""

    def __init__(self, draw: st.DataObject) -> None:
        super().__init__()
        self._draw = draw

    def choose(self, question: str, choices: Sequence[str], default: str) -> str:
        return str(self._draw.draw(st.sampled_from(list(choices)), label=question))

    def confirm(self, question: str, default: bool = False) -> bool:
        return bool(self._draw.draw(st.booleans(), label=question))


@given(st.data())
def test_every_way_through_the_questions_gives_a_file_that_loads(data: st.DataObject) -> None:
    made = ask_cluster(Chance(data), FOUR_GPUS)
    file = parse(made.to_dict(), "c.yaml")
    assert (file.problems, file.warnings) == ((), ())
    plan = resolve({"training_script": "t.py"}, FOUR_GPUS, {}, file).plan
    assert plan.sources["num_processes"] == "file"


@given(st.data())
def test_every_way_through_the_questions_on_sagemaker_too(data: st.DataObject) -> None:
    class Named(Chance):
        def text(self, question: str, default: str = "", check: Check = str) -> Any:
            return check(default or "something")

    made = ask_sagemaker(Named(data))
    assert isinstance(made, SageMakerConfig)
    assert parse(made.to_dict(), "c.yaml").problems == ()
