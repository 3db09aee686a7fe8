"""FullyShardedDataParallelPlugin: how models are sharded. Passed to `Accelerator`, or made by it.

This module loads without torch; the plugin holds torch's own values, and so needs it when it is made.
"""

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accelerate.compat import env
from accelerate.errors import ConfigurationError
from accelerate.options.codec import fill_from_environ
from accelerate.options.field import option
from accelerate.options.fsdp_values import (
    STRATEGIES,
    VERSION_1,
    has_accelerator,
    member,
    needs_version_1,
    to_empty,
    truth,
)

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["FullyShardedDataParallelPlugin"]

_POLICIES = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
_RAM_EFFICIENT = "FSDP_CPU_RAM_EFFICIENT_LOADING"


@dataclass
class FullyShardedDataParallelPlugin:
    """Choose how parameters, gradients and optimizer state are sharded over ranks.

    What is not passed is read from the environment when the plugin is made (`FSDP_*`).

    Args:
        fsdp_version: 2 (`fully_shard`) or 1. Default: 2, or 1 where something is asked for that only version
            1 has.
        sharding_strategy: version 1: what is sharded, by name, number or torch's enumeration.
        reshard_after_forward: version 2: free gathered parameters after the forward pass. Version 1: as
            `sharding_strategy`.
        backward_prefetch: version 1: when the next parameters are gathered in the backward pass.
        mixed_precision_policy: torch's policy, a dtype's name, or a dictionary of dtypes. None: as the run's
            `mixed_precision`.
        auto_wrap_policy: `transformer_based_wrap`, `size_based_wrap`, `no_wrap`, or a function.
        cpu_offload: parameters and gradients wait in CPU memory while they are not used.
        ignored_modules: modules that are not sharded, or a pattern of their names.
        state_dict_type: form of saved weights: FULL_STATE_DICT, SHARDED_STATE_DICT, in version 1 also
            LOCAL_STATE_DICT.
        state_dict_config: torch's options for that form.
        optim_state_dict_config: the same for optimizers.
        limit_all_gathers: version 1: gather no more than two modules ahead.
        use_orig_params: version 1: the optimizer sees the model's own parameters.
        param_init_fn: fills a module whose parameters are on the meta device.
        sync_module_states: version 1: rank 0's weights are sent to all ranks.
        forward_prefetch: version 1: gather the next parameters during the forward pass.
        activation_checkpointing: compute activations again in the backward pass.
        activation_checkpointing_offload: what that keeps waits in CPU memory.
        cpu_ram_efficient_loading: only rank 0 has pretrained weights, and sends the others their shards.
        transformer_cls_names_to_wrap: class names of the blocks, for `transformer_based_wrap`.
        min_num_params: parameters that a module must have, for `size_based_wrap`.

    Raises:
        ConfigurationError: a value is not allowed, or not with this version.
        EnvironmentVariableError: a variable cannot be read.

    Example:
        >>> plugin = FullyShardedDataParallelPlugin(fsdp_version=2, state_dict_type="FULL_STATE_DICT")
        >>> plugin.reshard_after_forward, plugin.state_dict_type.name
        (True, 'FULL_STATE_DICT')
    """

    fsdp_version: int = option(None, env="FSDP_VERSION", type=int)
    sharding_strategy: Any = option(None, env="FSDP_SHARDING_STRATEGY", type=str)
    reshard_after_forward: Any = option(None, env="FSDP_RESHARD_AFTER_FORWARD", type=str)
    backward_prefetch: Any = option(None, env="FSDP_BACKWARD_PREFETCH", type=str)
    mixed_precision_policy: Any = option(None)
    auto_wrap_policy: Any = option(None, env="FSDP_AUTO_WRAP_POLICY", type=str, fallback="NO_WRAP")
    cpu_offload: Any = option(None, env="FSDP_OFFLOAD_PARAMS", type=bool, fallback=False)
    ignored_modules: Any = option(None, env="FSDP_IGNORED_MODULES", type=str)
    state_dict_type: Any = option(None, env="FSDP_STATE_DICT_TYPE", type=str)
    state_dict_config: Any = option(None)
    optim_state_dict_config: Any = option(None)
    limit_all_gathers: bool = option(True)
    use_orig_params: bool | None = option(None, env="FSDP_USE_ORIG_PARAMS", fallback=False)
    param_init_fn: Any = option(None)
    sync_module_states: bool | None = option(None, env="FSDP_SYNC_MODULE_STATES", fallback=False)
    forward_prefetch: bool = option(None, env="FSDP_FORWARD_PREFETCH", fallback=False)
    activation_checkpointing: bool = option(None, env="FSDP_ACTIVATION_CHECKPOINTING", fallback=False)
    activation_checkpointing_offload: bool = option(
        None, env="FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", fallback=False
    )
    cpu_ram_efficient_loading: bool = option(None, env=_RAM_EFFICIENT, fallback=False)
    transformer_cls_names_to_wrap: list[str] | None = option(None, env="FSDP_TRANSFORMER_CLS_TO_WRAP")
    min_num_params: int | None = option(None, env="FSDP_MIN_NUM_PARAMS", fallback=0)

    def __post_init__(self) -> None:
        environ = env.snapshot()
        passed = {name: value for name, value in vars(self).items() if value is not None}
        if self.fsdp_version is None and "FSDP_VERSION" not in environ:
            self.fsdp_version = 1 if needs_version_1(passed, environ) else 2
        fill_from_environ(self, environ)
        if self.fsdp_version not in (1, 2):
            raise ConfigurationError(f"fsdp_version={self.fsdp_version!r}: use 2, or 1 for the older engine.")
        if "cpu_ram_efficient_loading" in passed:
            env.put({_RAM_EFFICIENT: bool(self.cpu_ram_efficient_loading)})
        if self.fsdp_version == 2:
            self._settle_version_2(passed)
        else:
            self._settle_version_1()
        self.set_cpu_offload()
        self.set_state_dict_type()
        self._settle_wrapping()
        if isinstance(self.mixed_precision_policy, str):
            self.set_mixed_precision(self.mixed_precision_policy, override=True)
        elif self.mixed_precision_policy is not None:
            self.validate_mixed_precision_policy()

    def _settle_version_2(self, passed: Mapping[str, Any]) -> None:
        if "sharding_strategy" in passed:
            raise ConfigurationError(
                f"FullyShardedDataParallelPlugin(sharding_strategy={self.sharding_strategy!r}, "
                "fsdp_version=2): only version 1 has it. Pass reshard_after_forward=True in place of "
                "FULL_SHARD, False in place of SHARD_GRAD_OP; or fsdp_version=1."
            )
        useless = [name for name in VERSION_1 if passed.get(name)]
        if useless:
            warnings.warn(
                f"FSDP version 2 does not use {', '.join(useless)}: leave it out, or pass fsdp_version=1.",
                stacklevel=4,
            )
        for name in VERSION_1:
            setattr(self, name, None)
        self.reshard_after_forward = truth(self.reshard_after_forward)

    def _settle_version_1(self) -> None:
        from torch.distributed.fsdp import BackwardPrefetch, ShardingStrategy

        if self.reshard_after_forward is not None and not isinstance(self.reshard_after_forward, bool):
            text = str(self.reshard_after_forward).lower()
            # The launcher writes version 2's truth value for both versions.
            self.reshard_after_forward = None if text in ("true", "false") else self.reshard_after_forward
        if isinstance(self.reshard_after_forward, bool):
            raise ConfigurationError(
                f"reshard_after_forward={self.reshard_after_forward} with fsdp_version=1: name a sharding "
                f"strategy, one of {', '.join(STRATEGIES)}; or pass fsdp_version=2."
            )
        reshard = self.reshard_after_forward
        if reshard is not None:
            reshard = self.reshard_after_forward = member(ShardingStrategy, reshard, "reshard_after_forward")
        asked = self.sharding_strategy if self.sharding_strategy is not None else reshard or "FULL_SHARD"
        self.sharding_strategy = member(ShardingStrategy, asked, "sharding_strategy")
        prefetch = self.backward_prefetch
        if prefetch is None or str(prefetch).upper() == "NO_PREFETCH":
            self.backward_prefetch = None
        else:
            self.backward_prefetch = member(BackwardPrefetch, prefetch, "backward_prefetch")
        if self.cpu_ram_efficient_loading and not self.sync_module_states:
            warnings.warn(
                "cpu_ram_efficient_loading needs sync_module_states=True, which sends rank 0's weights to "
                "the others; it is on now.",
                stacklevel=4,
            )
            self.sync_module_states = True
        if self.sync_module_states and self.param_init_fn is None:
            self.param_init_fn = to_empty

    def _settle_wrapping(self) -> None:
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy

        names = self.transformer_cls_names_to_wrap
        if isinstance(names, str):
            self.transformer_cls_names_to_wrap = [name.strip() for name in names.split(",") if name.strip()]
        policy = self.auto_wrap_policy
        if callable(policy):
            return
        name = str(policy).upper()
        if name not in _POLICIES:
            raise ConfigurationError(
                f"auto_wrap_policy={policy!r}: use one of {', '.join(each.lower() for each in _POLICIES)}, "
                "or pass a function of a module."
            )
        known = {
            "TRANSFORMER_BASED_WRAP": transformer_auto_wrap_policy,
            "SIZE_BASED_WRAP": size_based_auto_wrap_policy,
        }
        self.auto_wrap_policy = known.get(name)
        if name != "TRANSFORMER_BASED_WRAP":
            self.transformer_cls_names_to_wrap = None
        if name != "SIZE_BASED_WRAP":
            self.min_num_params = None

    def set_state_dict_type(self, state_dict_type: Any = None) -> None:
        """Choose the form of saved weights, with torch's options for it.

        Args:
            state_dict_type: name, number or torch's enumeration; None: the form in hand, or the version's
                own (full for version 1, sharded for version 2).

        Raises:
            ConfigurationError: there is no such form, or not in this version.
        """
        from torch.distributed import fsdp

        if state_dict_type is not None:
            self.state_dict_type = state_dict_type
        default = "FULL_STATE_DICT" if self.fsdp_version == 1 else "SHARDED_STATE_DICT"
        chosen = member(fsdp.StateDictType, self.state_dict_type or default, "state_dict_type")
        if self.fsdp_version == 2 and chosen is fsdp.StateDictType.LOCAL_STATE_DICT:
            raise ConfigurationError(
                "FSDP2 does not support LOCAL_STATE_DICT: use state_dict_type='SHARDED_STATE_DICT' (every "
                "rank writes its part) or 'FULL_STATE_DICT', or fsdp_version=1."
            )
        self.state_dict_type = chosen
        if chosen is fsdp.StateDictType.FULL_STATE_DICT:
            # torch 2.13 frees a CPU parameter that it was told to offload: `.cpu()` is no copy there.
            moves = has_accelerator()
            self.state_dict_config = self.state_dict_config or fsdp.FullStateDictConfig(
                offload_to_cpu=moves, rank0_only=True
            )
            self.optim_state_dict_config = self.optim_state_dict_config or fsdp.FullOptimStateDictConfig(
                offload_to_cpu=moves, rank0_only=True
            )
        elif chosen is fsdp.StateDictType.SHARDED_STATE_DICT:
            self.state_dict_config = self.state_dict_config or fsdp.ShardedStateDictConfig(
                offload_to_cpu=True
            )
            self.optim_state_dict_config = self.optim_state_dict_config or fsdp.ShardedOptimStateDictConfig(
                offload_to_cpu=True
            )

    def set_auto_wrap_policy(self, model: "Module") -> None:
        """Bind the wrap policy to the classes of `model`; a function that was passed is left alone.

        Raises:
            ConfigurationError: a class name is not in the model; the message lists those that are.
        """
        from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy, transformer_auto_wrap_policy

        from accelerate.modules.wrapping import block_classes

        if self.auto_wrap_policy is transformer_auto_wrap_policy:
            classes = block_classes(model, self.transformer_cls_names_to_wrap)
            self.auto_wrap_policy = functools.partial(
                transformer_auto_wrap_policy, transformer_layer_cls=classes
            )
        elif self.auto_wrap_policy is size_based_auto_wrap_policy:
            if self.min_num_params:
                self.auto_wrap_policy = functools.partial(
                    size_based_auto_wrap_policy, min_num_params=self.min_num_params
                )
            else:
                self.auto_wrap_policy = None

    def set_mixed_precision(
        self, mixed_precision: str, buffer_autocast: bool = False, override: bool = False
    ) -> None:
        """Give the policy the dtypes of a precision; one that was passed stays.

        Args:
            mixed_precision: fp16, bf16 or fp8 (which computes in bf16 elsewhere), or no.
            buffer_autocast: version 1: leave buffers in fp32.
            override: replace a policy that is there.

        Raises:
            ConfigurationError: there is no such precision.
        """
        import torch

        known = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16, "no": torch.float32}
        known["fp32"] = torch.float32
        if str(mixed_precision) not in known:
            raise ConfigurationError(
                f"set_mixed_precision({mixed_precision!r}): use one of {', '.join(known)}."
            )
        dtype = known[str(mixed_precision)]
        if self.mixed_precision_policy is None or override:
            self.mixed_precision_policy = self._policy(
                {"param_dtype": dtype, "reduce_dtype": dtype}
                | ({"output_dtype": dtype} if self.fsdp_version == 2 else {})
                | ({"buffer_dtype": torch.float32 if buffer_autocast else dtype} if self._is_first else {})
            )

    @property
    def _is_first(self) -> bool:
        return self.fsdp_version == 1

    def _policy(self, dtypes: dict[str, Any]) -> Any:
        from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy

        return MixedPrecision(**dtypes) if self._is_first else MixedPrecisionPolicy(**dtypes)

    def validate_mixed_precision_policy(self) -> None:
        """Make a policy of a dictionary, and refuse one of the other version.

        Raises:
            ConfigurationError: it is no policy of this version.
        """
        import torch
        from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy

        policy = self.mixed_precision_policy
        kind = MixedPrecision if self._is_first else MixedPrecisionPolicy
        if isinstance(policy, dict):
            names = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
            try:
                dtypes = {
                    key: getattr(torch, names.get(value, value)) if isinstance(value, str) else value
                    for key, value in policy.items()
                }
                self.mixed_precision_policy = self._policy(dtypes)
            except (AttributeError, TypeError) as error:
                raise ConfigurationError(
                    f"mixed_precision_policy={policy!r}: use arguments of {kind.__name__} with dtypes such "
                    f"as 'bf16', 'fp16', 'fp32' ({error})."
                ) from None
        elif not isinstance(policy, kind):
            raise ConfigurationError(
                f"mixed_precision_policy={policy!r} with fsdp_version={self.fsdp_version}: pass a "
                f"{kind.__name__}, a dictionary of its arguments, or a precision such as 'bf16'."
            )

    def set_cpu_offload(self) -> None:
        """Make torch's offload option of a truth value.

        Raises:
            ConfigurationError: it is an option of the other version.
        """
        from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, OffloadPolicy

        if isinstance(self.cpu_offload, bool):
            if self._is_first:
                self.cpu_offload = CPUOffload(offload_params=self.cpu_offload)
            else:
                # Without an accelerator nothing can be pinned.
                pinned = CPUOffloadPolicy(pin_memory=has_accelerator())
                self.cpu_offload = pinned if self.cpu_offload else OffloadPolicy()
        self.validate_cpu_offload()

    def validate_cpu_offload(self) -> None:
        """Refuse an offload option of the other version.

        Raises:
            ConfigurationError: it is none of this version.
        """
        from torch.distributed.fsdp import CPUOffload, OffloadPolicy

        kind = CPUOffload if self._is_first else OffloadPolicy
        if self.cpu_offload is not None and not isinstance(self.cpu_offload, kind):
            raise ConfigurationError(
                f"cpu_offload={self.cpu_offload!r} with fsdp_version={self.fsdp_version}: pass True, False "
                f"or torch's {'CPUOffload' if self._is_first else 'CPUOffloadPolicy'}."
            )
