"""Two models with an optimizer and a scheduler each, trained in turns: bit for bit as by hand."""

from contextlib import ExitStack
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from accelerate.accelerator import Accelerator

NUM_ACCUMULATION, BATCH_SIZE, NUM_EPOCHS = 2, 2, 2
NUM_EXAMPLES = 20  # on 2 ranks 5 batches each, so that the last window of an epoch is short


def make_data():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(NUM_EXAMPLES, 3, generator=generator), torch.randn(
        NUM_EXAMPLES, 2, generator=generator
    )


def make_models(seed):
    """Return a generator and a critic, and for each an optimizer and a schedule."""
    torch.manual_seed(seed)
    generator, critic = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizers = (
        torch.optim.SGD(generator.parameters(), lr=0.1),
        torch.optim.AdamW(critic.parameters(), lr=0.01),
    )
    schedulers = (
        LambdaLR(optimizers[0], lambda step: 0.9**step),
        LambdaLR(optimizers[1], lambda step: 1 / (1 + step)),
    )
    return generator, critic, optimizers, schedulers


def critic_loss(generator, critic, real, noise):
    scores = critic(torch.cat([real, generator(noise).detach()]))
    labels = torch.cat([torch.ones(len(real), 1), torch.zeros(len(noise), 1)])
    return cross_entropy(scores, labels)


def generator_loss(generator, bare_critic, noise):
    """Return the loss of fooling the critic, whose own gradients are left alone."""
    bare_critic.requires_grad_(False)
    scores = bare_critic(generator(noise))
    bare_critic.requires_grad_(True)
    return cross_entropy(scores, torch.ones(len(noise), 1))


def weights(*models):
    return [parameter.detach() for model in models for parameter in model.parameters()]


def with_accelerate(every):
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=NUM_ACCUMULATION)
    generator, critic, optimizers, schedulers = make_models(seed=accelerator.process_index)
    loader = DataLoader(TensorDataset(*make_data()), batch_size=BATCH_SIZE)
    generator, critic, of_generator, of_critic, slow, fast, loader = accelerator.prepare(
        generator, critic, *optimizers, *schedulers, loader
    )
    bare_critic = accelerator.unwrap_model(critic)
    for _ in range(NUM_EPOCHS):
        for index, (real, noise) in enumerate(loader):
            with accelerator.accumulate(generator, critic):
                accelerator.backward(critic_loss(generator, critic, real, noise))
                of_critic.step()
                fast.step()
                of_critic.zero_grad()
                if index % every == 0:
                    accelerator.backward(generator_loss(generator, bare_critic, noise))
                    of_generator.step()
                    slow.step()
                    of_generator.zero_grad()
    rates = slow.get_last_lr() + fast.get_last_lr()
    accelerator.end_training()
    return weights(generator, critic), rates


def by_hand(every):
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    result = train_by_hand(every)  # its wrappers are gone before the group, whose threads they would wait for
    dist.destroy_process_group()
    return result


def train_by_hand(every):
    rank, size = dist.get_rank(), dist.get_world_size()
    generator, critic, (of_generator, of_critic), (slow, fast) = make_models(seed=rank)
    bare_critic = critic
    generator, critic = DistributedDataParallel(generator), DistributedDataParallel(critic)
    real_all, noise_all = make_data()
    num_batches = NUM_EXAMPLES // (BATCH_SIZE * size)
    for _ in range(NUM_EPOCHS):
        for index in range(num_batches):
            start = (index * size + rank) * BATCH_SIZE
            real, noise = real_all[start : start + BATCH_SIZE], noise_all[start : start + BATCH_SIZE]
            ends = (index + 1) % NUM_ACCUMULATION == 0 or index + 1 == num_batches
            turns = [(critic_loss, critic, of_critic, fast)]
            turns += [(generator_loss, bare_critic, of_generator, slow)] if index % every == 0 else []
            with ExitStack() as stack:
                if not ends:
                    stack.enter_context(generator.no_sync())
                    stack.enter_context(critic.no_sync())
                for loss, opponent, optimizer, scheduler in turns:
                    inputs = (real, noise) if loss is critic_loss else (noise,)
                    (loss(generator, opponent, *inputs) / NUM_ACCUMULATION).backward()
                    if ends:
                        optimizer.step()
                        for _ in range(size):
                            scheduler.step()
                        optimizer.zero_grad()
    return weights(generator, critic), slow.get_last_lr() + fast.get_last_lr()


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_two_models_trained_in_turns(rank_pool, every, num_ranks):
    ours = rank_pool.run(with_accelerate, every, num_ranks=num_ranks)
    plain = rank_pool.run(by_hand, every, num_ranks=num_ranks)
    start = weights(*make_models(seed=0)[:2])
    for (our_weights, our_rates), (plain_weights, plain_rates) in zip(ours, plain, strict=True):
        assert our_rates == plain_rates
        assert all(torch.equal(one, other) for one, other in zip(our_weights, plain_weights, strict=True))
        assert not any(torch.equal(one, other) for one, other in zip(our_weights, start, strict=True))


def triggers():
    accelerator = Accelerator(cpu=True)
    seen = []
    for raisers in ([], [2], [0, 1, 2], [], [1, 1], []):
        for _ in range(raisers.count(accelerator.process_index)):
            accelerator.set_trigger()
        seen.append(accelerator.check_trigger())
    accelerator.set_trigger() if accelerator.is_last_process else None
    accelerator.free_memory()
    return seen, accelerator.check_trigger(), accelerator.check_trigger()


def test_triggers_of_any_ranks_are_seen_by_all_and_once(rank_pool):
    expected = ([False, True, True, False, True, False], True, False)
    assert rank_pool.run(triggers, num_ranks=3) == [expected] * 3


def early_stop():
    """Stop when one rank alone has seen enough; all leave the loop after the same batch."""
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(range(40), batch_size=1))
    for index, _ in enumerate(loader):
        if index == 2 * accelerator.process_index + 3:
            accelerator.set_trigger()
        if accelerator.check_trigger():
            break
    return index, len(accelerator.gather(torch.zeros(1)))


def test_ranks_stop_together(rank_pool):
    assert rank_pool.run(early_stop, num_ranks=3) == [(3, 3)] * 3
