"""Gradients through communication hooks, against torch's own hooks where these run, or a formula."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.errors import ConfigurationError
from tests.support.plain_torch import TIMEOUT

RANKS = [2, 3]
NUM_STEPS = 6
FIRST = {"start_powerSGD_iter": 2}  # the earliest that torch allows
MANY_BUCKETS = {"bucket_cap_mb": 1e-4}  # each parameter has one of its own


def network():
    torch.manual_seed(3)
    layers = [layer for _ in range(3) for layer in (nn.Linear(12, 12), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(12, 4))


def network_of_squares():
    torch.manual_seed(3)
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(12, 12, bias=False), nn.Tanh())])


def inputs(step, rank):
    return torch.randn(5, 12, generator=torch.Generator().manual_seed(100 * step + rank))


def train(model, backward, rank):
    """Train with a plain rule; return the gradients of every step and the last weights, flat."""
    parameters = list(model.parameters())
    gradients = []
    for step in range(NUM_STEPS):
        backward(model(inputs(step, rank)).square().mean())
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in parameters]))
        with torch.no_grad():
            for parameter in parameters:
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    return gradients, torch.cat([parameter.detach().flatten() for parameter in parameters])


def by_hand(register, kwargs):
    dist.init_process_group("gloo", timeout=TIMEOUT)
    model = DistributedDataParallel(network(), **kwargs)
    register(model)
    return train(model, torch.Tensor.backward, dist.get_rank())


def with_accelerator(make=network, **options):
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**options)])
    model = accelerator.prepare(make())
    return train(model, accelerator.backward, accelerator.process_index)


def torch_fp16(model):
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


def torch_power_sgd(model):
    state = powerSGD_hook.PowerSGDState(None, **FIRST)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def torch_power_sgd_in_fp16(model):
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, **FIRST)
    hook = default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook)
    model.register_comm_hook(state, hook)


def bf16_formula(model):
    def hook(state, bucket):
        sent = bucket.buffer().to(torch.bfloat16) / dist.get_world_size()
        dist.all_reduce(sent)
        future = torch.futures.Future()
        future.set_result(sent.float())
        return future

    model.register_comm_hook(None, hook)


def power_sgd_in_bf16_formula(model):
    state = powerSGD_hook.PowerSGDState(None, **FIRST)

    def hook(state, bucket):
        bucket.set_buffer(bucket.buffer().to(torch.bfloat16))
        return powerSGD_hook.powerSGD_hook(state, bucket).then(lambda future: future.value().float())

    model.register_comm_hook(state, hook)


def no_hook(model):
    pass


CASES = {
    "none": (no_hook, {}),
    "fp16": (torch_fp16, {"comm_hook": "fp16"}),
    "fp16 around nothing": (torch_fp16, {"comm_wrapper": "fp16"}),
    "fp16, many buckets": (torch_fp16, {"comm_hook": "fp16", **MANY_BUCKETS}),
    "fp16, views": (torch_fp16, {"comm_hook": "fp16", "gradient_as_bucket_view": True}),
    "bf16": (bf16_formula, {"comm_hook": "bf16"}),
    "bf16 around nothing": (bf16_formula, {"comm_wrapper": "bf16"}),
    "bf16, many buckets": (bf16_formula, {"comm_hook": "bf16", **MANY_BUCKETS}),
    "PowerSGD": (torch_power_sgd, {"comm_hook": "power_sgd", "comm_state_option": FIRST}),
    "PowerSGD in fp16": (
        torch_power_sgd_in_fp16,
        {
            "comm_hook": "power_sgd",
            "comm_wrapper": "fp16",
            "comm_state_option": {**FIRST, "matrix_approximation_rank": 2},
        },
    ),
    "PowerSGD in bf16": (
        power_sgd_in_bf16_formula,
        {"comm_hook": "power_sgd", "comm_wrapper": "bf16", "comm_state_option": FIRST},
    ),
}
DDP_OPTIONS = ("bucket_cap_mb", "gradient_as_bucket_view")


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("case", CASES)
def test_gradients_and_weights_are_bit_for_bit_those_of_hand_written_ddp(rank_pool, case, num_ranks):
    register, options = CASES[case]
    kwargs = {name: options[name] for name in DDP_OPTIONS if name in options}
    expected = rank_pool.run(by_hand, register, kwargs, num_ranks=num_ranks)
    actual = rank_pool.run(with_accelerator, num_ranks=num_ranks, **options)
    for (gradients, weights), (by_hand_gradients, by_hand_weights) in zip(actual, expected, strict=True):
        torch.testing.assert_close(gradients, by_hand_gradients, rtol=0, atol=0)
        torch.testing.assert_close(weights, by_hand_weights, rtol=0, atol=0)


def test_the_cases_tell_each_other_apart(rank_pool):
    outcomes = {case: rank_pool.run(with_accelerator, **CASES[case][1])[0][1] for case in CASES}
    for one, other in [("none", "fp16"), ("none", "bf16"), ("fp16", "bf16"), ("none", "PowerSGD")]:
        assert not torch.equal(outcomes[one], outcomes[other])
    assert not torch.equal(outcomes["PowerSGD"], outcomes["PowerSGD in fp16"])


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize(
    "ddp_options",
    [
        {},
        MANY_BUCKETS,
        {**MANY_BUCKETS, "gradient_as_bucket_view": True},
        {**MANY_BUCKETS, "static_graph": True},
    ],
    ids=lambda options: ",".join(options) or "one bucket",
)
@pytest.mark.parametrize("hook", ["power_sgd", "batched_power_sgd"])
def test_power_sgd_of_full_rank_is_the_plain_mean(rank_pool, hook, ddp_options, num_ranks):
    """It loses nothing then. torch's own hooks hang here with many buckets, and batched they always fail."""
    rank = 24 if hook == "batched_power_sgd" and "bucket_cap_mb" not in ddp_options else 12
    state_options = {**FIRST, "matrix_approximation_rank": rank, "min_compression_rate": 0.001}
    options = {"comm_hook": hook, "comm_state_option": state_options, **ddp_options}
    exact = rank_pool.run(with_accelerator, network_of_squares, num_ranks=num_ranks)
    compressed = rank_pool.run(with_accelerator, network_of_squares, num_ranks=num_ranks, **options)
    for (gradients, weights), (exact_gradients, exact_weights) in zip(compressed, exact, strict=True):
        torch.testing.assert_close(weights, exact_weights, rtol=0, atol=1e-4)
        torch.testing.assert_close(gradients[-1], exact_gradients[-1], rtol=0, atol=1e-4)
        assert torch.equal(weights, compressed[0][1])


@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("hook", ["power_sgd", "batched_power_sgd"])
def test_power_sgd_sends_matrices_of_low_rank(rank_pool, hook, num_ranks):
    (gradients, _), *others = rank_pool.run(
        with_accelerator, comm_hook=hook, comm_state_option=FIRST, num_ranks=num_ranks
    )
    if hook == "power_sgd":
        matrices = [gradient[:144].view(12, 12) for gradient in gradients]  # of the first layer's weight
    else:  # of the one bucket, a square of 23 rows of which 9 elements have no gradient
        matrices = [bucket_order(flat)[: 22 * 23].view(22, 23) for flat in gradients]
    ranks = [int(torch.linalg.matrix_rank(matrix, rtol=1e-4)) for matrix in matrices]
    assert min(ranks[:2]) > 1  # not yet compressed
    assert ranks[2:] == [1] * (NUM_STEPS - 2)
    for other, _ in others:
        torch.testing.assert_close(other, gradients, rtol=0, atol=0)


def bucket_order(flat):
    """Return the gradients of `network` in the order in which backward made them: the last layer's first."""
    sizes = [size for layer in (*[(144, 12)] * 3, (48, 4)) for size in layer]
    return torch.cat(flat.split(sizes)[::-1])


class Branches(nn.Module):
    """A network of which each step uses one branch only."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.branches = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, values, index):
        return self.branches[index](values)


def train_branches(hook, state_options, ddp_options):
    handler = DistributedDataParallelKwargs(
        comm_hook=hook, comm_state_option=state_options, find_unused_parameters=True, **ddp_options
    )
    accelerator = Accelerator(cpu=True, kwargs_handlers=[handler])
    model = accelerator.prepare(Branches())
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(8):
        accelerator.backward(model(torch.ones(2, 8) + accelerator.process_index, step % 2).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("ddp_options", [{}, MANY_BUCKETS], ids=["one bucket", "many buckets"])
@pytest.mark.parametrize("num_ranks", RANKS)
@pytest.mark.parametrize("hook", ["power_sgd", "batched_power_sgd"])
def test_parameters_that_a_step_does_not_use(rank_pool, hook, num_ranks, ddp_options):
    # The gradients of such parameters are zeros, which have no direction.
    state_options = {**FIRST, "orthogonalization_epsilon": 1e-8}
    weights, *others = rank_pool.run(train_branches, hook, state_options, ddp_options, num_ranks=num_ranks)
    assert weights.isfinite().all()
    assert all(torch.equal(weights, other) for other in others)


def registered_by_the_user():
    accelerator = Accelerator(cpu=True)
    model = DistributedDataParallel(network())
    DistributedDataParallelKwargs(comm_hook="fp16").register_comm_hook(model)
    return train(model, accelerator.backward, accelerator.process_index)


def test_a_model_that_the_user_has_wrapped(rank_pool):
    expected = rank_pool.run(by_hand, torch_fp16, {})
    for (_, weights), (_, by_hand_weights) in zip(
        rank_pool.run(registered_by_the_user), expected, strict=True
    ):
        assert torch.equal(weights, by_hand_weights)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.tensor(1.0))


def error_of_prepare(options, make=network):
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**options)])
    model = make()
    before = set(vars(model))
    try:
        accelerator.prepare(model)
    except ConfigurationError as error:
        assert set(vars(model)) == before
        return str(error)
    return None


@pytest.mark.parametrize(
    ("state_options", "text"),
    [
        ({"rank": 2}, "PowerSGD has no 'rank'; it has matrix_approximation_rank"),
        ({"matrix_approximation_rank": 0}, "an integer from 1 on"),
        ({"matrix_approximation_rank": 1.5}, "an integer from 1 on"),
        ({"start_powerSGD_iter": 1}, "`start_powerSGD_iter` > 1"),
        ({"process_group": None}, "PowerSGD has no 'process_group'"),
    ],
)
@pytest.mark.parametrize("hook", ["power_sgd", "batched_power_sgd"])
def test_options_that_make_no_sense(rank_pool, hook, state_options, text):
    options = {"comm_hook": hook, "comm_state_option": state_options}
    errors = rank_pool.run(error_of_prepare, options)
    assert all(text in error for error in errors)


def test_torch_allows_to_start_at_once_without_memory(rank_pool):
    state_options = {"start_powerSGD_iter": 0, "use_error_feedback": False, "warm_start": False}
    options = {"comm_hook": "power_sgd", "comm_state_option": state_options}
    assert rank_pool.run(error_of_prepare, options) == [None, None]


def test_a_scalar_parameter_has_no_rows(rank_pool):
    options = {"comm_hook": "power_sgd", "comm_state_option": FIRST}
    for error in rank_pool.run(error_of_prepare, options, Scaled):
        assert "scale of shape ()" in error
    assert rank_pool.run(error_of_prepare, {**options, "comm_hook": "batched_power_sgd"}, Scaled) == [
        None,
        None,
    ]


def error_of_backward(options):
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(**options)])
    model = accelerator.prepare(network())
    try:
        train(model, accelerator.backward, accelerator.process_index)
    except ConfigurationError as error:
        return str(error)
    return None


def test_a_rank_that_a_bucket_cannot_have(rank_pool):
    options = {
        "comm_hook": "batched_power_sgd",
        "comm_state_option": {**FIRST, "matrix_approximation_rank": 24},
    }
    for error in rank_pool.run(error_of_backward, options):
        assert "a square of 23 rows" in error
