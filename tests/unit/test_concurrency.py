"""Several threads, and processes that a DataLoader forks, use operations and state at once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset

from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import (
    concatenate,
    convert_to_fp32,
    gather,
    gather_object,
    pad_across_processes,
    patch_environment,
    reduce,
    send_to_device,
    slice_tensors,
)

NUM_THREADS = 4
ROUNDS = 50


def in_threads(function):
    """Call `function(number)` in several threads that begin together; return what they return."""
    start = threading.Barrier(NUM_THREADS)

    def run(number):
        start.wait(10)
        return function(number)

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(run, range(NUM_THREADS), timeout=60))


def test_threads_use_operations_side_by_side():
    def work(number):
        data = {"a": [torch.full((3, 2), float(number)).bfloat16()], "b": (torch.tensor(number), "text")}
        for _ in range(ROUNDS):
            moved = convert_to_fp32(send_to_device(data, "cpu"))
            assert moved["a"][0].dtype == torch.float32
            assert gather(moved)["a"][0].tolist() == [[number, number]] * 3
            assert reduce(moved["a"][0]).sum().item() == 6 * number
            assert pad_across_processes(moved["a"][0], dim=1).shape == (3, 2)
            assert concatenate([moved["a"][0]] * 2).shape == (6, 2)
            assert slice_tensors(moved["a"], slice(0, 1))[0].tolist() == [[number, number]]
            assert gather_object([number]) == [number]
        return number

    assert in_threads(work) == list(range(NUM_THREADS))


def test_threads_that_start_the_run_together_make_one():
    states = in_threads(lambda _: PartialState(cpu=True))
    assert len({id(state.__dict__) for state in states}) == 1
    assert {state.device for state in states} == {torch.device("cpu")}


def test_threads_train_models_of_their_own():
    accelerator = Accelerator(cpu=True)

    def work(number):
        parameter = torch.nn.Parameter(torch.ones(2) * number)
        for _ in range(ROUNDS):
            accelerator.backward((parameter * 2).sum())
        return parameter.grad.tolist()

    assert in_threads(work) == [[2.0 * ROUNDS] * 2] * NUM_THREADS


class AsksState(Dataset):
    """Each item is what the state says in the process that makes it."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        state = PartialState()
        with patch_environment(ACCELERATE_TEST_ITEM=index):
            moved = send_to_device({"index": torch.tensor(index)}, state.device)
        precision = AcceleratorState().mixed_precision
        return (
            gather(moved["index"]),
            state.process_index,
            precision == "bf16",
            GradientState().sync_gradients,
        )


def test_workers_of_a_loader_ask_the_state():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    loader = DataLoader(AsksState(), batch_size=2, num_workers=2, multiprocessing_context="fork", timeout=60)
    loader = accelerator.prepare(loader)
    items = list(loader)
    assert [item for index, *_ in items for item in index.tolist()] == list(range(8))
    for _, ranks, precise, synchronised in items:
        assert ranks.tolist() == [0, 0]
        assert precise.all()
        assert synchronised.all()
