"""FSDP version 2 on real gloo ranks against one process: losses, weights, bytes, checkpoints."""

import warnings

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils.data import DataLoader, TensorDataset

from accelerate import Accelerator
from accelerate.options.fsdp import FullyShardedDataParallelPlugin
from accelerate.runtime.current import current

STEPS = 10
GLOBAL_BATCH = 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, bias=False, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norm(hidden)
        hidden = hidden + self.attention(normed, normed, normed, need_weights=False)[0]
        return hidden + self.mlp(hidden)


class Transformer(nn.Module):
    """Two blocks between an embedding and a head, which may be tied."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 20, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden)


def tokens() -> torch.Tensor:
    """(steps * global batch, sequence of 6)"""
    return torch.randint(0, 20, (STEPS * GLOBAL_BATCH, 6), generator=torch.Generator().manual_seed(5))


def make(*, tied: bool = False, seed: int = 0):
    torch.manual_seed(seed)
    model = Transformer(tied=tied)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def loss_of(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


def accelerate(plugin: dict | None = None, **kwargs) -> Accelerator:
    plugin = {"fsdp_version": 2, **(plugin or {})} if current.ensure().num_processes > 1 else None
    plugin = FullyShardedDataParallelPlugin(**plugin) if plugin else None
    return Accelerator(cpu=True, fsdp_plugin=plugin, **kwargs)


def train(accelerator, model, optimizer, *, batches, clip=None):
    losses = []
    for batch in batches:
        with accelerator.accumulate(model):
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            if clip and accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.reduce(loss.detach(), "mean").item())
    return losses


def loader(start: int = 0) -> DataLoader:
    rows = TensorDataset(tokens()[start * GLOBAL_BATCH :])
    return DataLoader(rows, batch_size=GLOBAL_BATCH // current.ensure().num_processes)


def run(plugin=None, *, tied=False, clip=None, steps=1, **kwargs):
    """Train and give back the losses and, on rank 0, the whole weights."""
    accelerator = accelerate(plugin, gradient_accumulation_steps=steps, **kwargs)
    model, optimizer = make(tied=tied, seed=current.process_index)  # rank 0's weights count
    model, optimizer, data = accelerator.prepare(model, optimizer, loader())
    losses = train(accelerator, model, optimizer, batches=(batch for (batch,) in data), clip=clip)
    return losses, accelerator.get_state_dict(model)


CASES = {
    "blocks": ({}, {}),
    "clipping": ({}, {"clip": 0.1}),
    "accumulation": ({}, {"steps": 2, "clip": 0.5}),
    "tied": ({}, {"tied": True}),
    "kept": ({"reshard_after_forward": False}, {}),
    "checkpointing": ({"activation_checkpointing": True}, {}),
    "offload": ({"cpu_offload": True}, {"clip": 0.1}),
    "by name": (
        {"auto_wrap_policy": "transformer_based_wrap", "transformer_cls_names_to_wrap": ["Block"]},
        {},
    ),
    "by size": ({"auto_wrap_policy": "size_based_wrap", "min_num_params": 1100}, {}),
    "rank 0 loads": ({"cpu_ram_efficient_loading": True}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_training_equals_one_process(rank_pool, case):
    plugin, options = CASES[case]
    ((alone, weights),) = rank_pool.run(run, num_ranks=1, **options)
    results = rank_pool.run(run, plugin, num_ranks=2, **options)
    for losses, _ in results:
        assert losses == pytest.approx(alone, abs=1e-5)
    sharded = results[0][1]
    assert sharded.keys() == weights.keys()
    for name, value in weights.items():
        torch.testing.assert_close(sharded[name], value, atol=2e-4, rtol=1e-4)


def test_four_ranks(rank_pool):
    ((alone, _),) = rank_pool.run(run, num_ranks=1, clip=0.1)
    for losses, _ in rank_pool.run(run, num_ranks=4, clip=0.1):
        assert losses == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_keeps_master_weights(rank_pool, precision):
    ((alone, _),) = rank_pool.run(run, num_ranks=1, mixed_precision=precision, clip=0.5)
    for losses, weights in rank_pool.run(run, num_ranks=2, mixed_precision=precision, clip=0.5):
        assert losses == pytest.approx(alone, abs=0.05)
        assert losses[-1] < losses[0]
        assert all(weight.dtype is torch.float32 for weight in weights.values())


def parts_and_collectives() -> tuple[int, int, int, dict[str, int], dict[str, int]]:
    accelerator = accelerate()
    model, optimizer = make()
    whole = sum(parameter.nbytes for parameter in model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    first = tokens()[: GLOBAL_BATCH // 2]
    ours = counted(lambda: accelerator.backward(loss_of(model, first)))
    optimizer.step()
    here = sum(parameter.to_local().nbytes for parameter in model.parameters())
    state = sum(
        value.to_local().nbytes
        for values in optimizer.state.values()
        for value in values.values()
        if isinstance(value, DTensor)
    )
    by_hand, _ = make()
    for block in by_hand.blocks:
        fully_shard(block)
    fully_shard(by_hand)
    theirs = counted(lambda: loss_of(by_hand, first).backward())
    return whole, here, state, ours, theirs


def counted(work) -> dict[str, int]:
    with warnings.catch_warnings(), CommDebugMode() as mode:
        warnings.filterwarnings("ignore", ".*returned a view tensor")
        warnings.filterwarnings("ignore", "Full backward hook is firing")  # the counter's
        work()
    return {str(name): count for name, count in mode.get_comm_counts().items()}


def test_every_rank_holds_its_part_and_communicates_as_by_hand(rank_pool):
    for whole, here, state, ours, theirs in rank_pool.run(parts_and_collectives, num_ranks=2):
        assert here == whole // 2
        assert state == whole  # two moments of half the size each
        assert ours == theirs
        assert sum(ours.values()) > 4


def separate_calls() -> list[float]:
    accelerator = accelerate()
    model, optimizer = make()
    optimizer = accelerator.prepare(optimizer)
    model = accelerator.prepare(model)
    data = accelerator.prepare(loader())
    return train(accelerator, model, optimizer, batches=(batch for (batch,) in data))


def test_model_and_optimizer_may_come_separately(rank_pool):
    ((alone, _),) = rank_pool.run(run, num_ranks=1)
    for losses in rank_pool.run(separate_calls, num_ranks=2):
        assert losses == pytest.approx(alone, abs=1e-5)


def one_module_ignored() -> tuple[bool, bool, str]:
    accelerator = accelerate({"ignored_modules": "head"})
    model, optimizer = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, optimizer = accelerator.prepare(model, optimizer)
    sharded = isinstance(model.embedding.weight, DTensor), isinstance(model.head.weight, DTensor)
    return *sharded, " ".join(str(each.message) for each in caught)


def test_ignored_modules_stay_whole_and_trained_ones_are_warned_about(rank_pool):
    for embedding, head, said in rank_pool.run(one_module_ignored, num_ranks=2):
        assert embedding
        assert not head
        assert "freeze them" in said


def save_half(folder: str, form: str) -> list[float]:
    accelerator = accelerate({"state_dict_type": form})
    model, optimizer, data = accelerator.prepare(*make(), loader())
    batches = [batch for (batch,) in data]
    train(accelerator, model, optimizer, batches=batches[: STEPS // 2])
    accelerator.save_state(folder)
    return train(accelerator, model, optimizer, batches=batches[STEPS // 2 :])


def resume(folder: str, form: str) -> list[float]:
    accelerator = accelerate({"state_dict_type": form})
    model, optimizer = accelerator.prepare(*make(seed=9))
    data = accelerator.prepare(loader(STEPS // 2))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Random states of rank . not restored")
        accelerator.load_state(folder)
    return train(accelerator, model, optimizer, batches=(batch for (batch,) in data))


@pytest.mark.parametrize("form", ["SHARDED_STATE_DICT", "FULL_STATE_DICT"])
def test_resume_on_another_number_of_ranks(rank_pool, tmp_path, form):
    folder = str(tmp_path / "checkpoint")
    (went_on, _) = rank_pool.run(save_half, folder, form, num_ranks=2)
    names = {path.name for path in (tmp_path / "checkpoint").iterdir()}
    parts = {"pytorch_model_fsdp_0", "optimizer_0"}
    assert names >= (parts if form.startswith("S") else {"pytorch_model_fsdp.bin", "optimizer.bin"})
    for num_ranks in (4, 2, 1):
        for losses in rank_pool.run(resume, folder, form, num_ranks=num_ranks):
            assert losses == pytest.approx(went_on, abs=1e-5)
