"""`notebook_launcher` where it is used: in a real Jupyter kernel, cell after cell."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.notebook import Notebook
from tests.unit.test_pages import blocks

START = """
import os
import torch
from accelerate import notebook_launcher

torch.set_num_threads(2)
torch.randn(3_000_000).exp().sum()  # has threads, which a fork loses
offset = 10

def train(x):
    from accelerate import Accelerator

    accelerator = Accelerator()
    torch.set_num_threads(2)
    torch.randn(3_000_000).exp().sum()
    total = accelerator.reduce(torch.tensor([accelerator.process_index + x + offset])).item()
    rank, size, local = accelerator.process_index, accelerator.num_processes, accelerator.local_process_index
    print(f"rank {rank} of {size} {local} {total} {accelerator.mixed_precision}\\n", end="")
    accelerator.end_training()
"""

# torch's own initialization of CUDA, on a build without it.
FAKE_CUDA = """
import torch

torch._C._cuda_getDeviceCount = lambda: 1
torch._C._cuda_init = lambda: None
torch.cuda._cudart = object()
torch.cuda._queued_calls.clear()  # they ask the device
"""


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    with Notebook() as notebook:
        assert notebook.run(START).error is None
        yield notebook


@pytest.fixture
def another() -> Iterator[Notebook]:
    with Notebook() as notebook:
        yield notebook


def ranks(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if "rank" in line)


def test_functions_of_the_notebook_run(notebook: Notebook) -> None:
    shown = notebook.run('notebook_launcher(train, (1,), num_processes=2, mixed_precision="bf16")')
    assert shown.error is None, shown.traceback
    assert ranks(shown.text) == ["rank 0 of 2 0 23 bf16", "rank 1 of 2 1 23 bf16"]
    assert shown.text.startswith("Launching training on 2 CPU processes.\n")


def test_nothing_is_left_in_the_notebook(notebook: Notebook) -> None:
    shown = notebook.run("""
        import json, signal
        names = ["MASTER_PORT", "WORLD_SIZE", "ACCELERATE_MIXED_PRECISION", "TORCHELASTIC_SIGNALS_TO_HANDLE"]
        notebook_launcher(train, (1,), num_processes=2)
        print("left", json.dumps([name for name in names if name in os.environ]))
        print("handler", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    """)
    assert shown.error is None, shown.traceback
    assert json.loads(shown.text.split("left ")[1].splitlines()[0]) == []
    assert "handler True" in shown.text


def test_prefixes_and_another_rendezvous(notebook: Notebook) -> None:
    shown = notebook.run("""
        notebook_launcher(train, (1,), num_processes=2, log_line_prefix_template="[of rank ${rank}] ")
        notebook_launcher(train, (2,), num_processes=2, rdzv_backend="c10d", use_port="0")
    """)
    assert shown.error is None, shown.traceback
    lines = ["rank 0 of 2 0 23 no", "rank 1 of 2 1 23 no"]
    prefixed = [f"[of rank {rank}] {line}" for rank, line in enumerate(lines)]
    assert ranks(shown.text) == [*prefixed, "rank 0 of 2 0 25 no", "rank 1 of 2 1 25 no"]


def test_a_port_in_use_is_no_problem(notebook: Notebook) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        shown = notebook.run(f'notebook_launcher(train, (1,), num_processes=2, use_port="{port}")')
    assert shown.error is None, shown.traceback


def test_the_exception_of_a_rank_is_raised(notebook: Notebook) -> None:
    shown = notebook.run("""
        class Odd(Exception):
            pass

        def fail():
            from accelerate import Accelerator

            accelerator = Accelerator()
            if accelerator.process_index == 1:
                raise Odd("boom")
            accelerator.reduce(torch.ones(1))

        try:
            notebook_launcher(fail, num_processes=2)
        except Odd as error:
            print("caught", error)
        notebook_launcher(fail, num_processes=2)
    """)
    assert "caught boom" in shown.text
    assert (shown.error, shown.message) == ("Odd", "boom")
    assert "rank 1 of 2:" in shown.traceback
    assert 'raise Odd("boom")' in shown.traceback


def test_ranks_are_restarted(notebook: Notebook, tmp_path: Path) -> None:
    shown = notebook.run(f"""
        def flaky():
            attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
            open(r"{tmp_path}/" + attempt + os.environ["RANK"], "w").close()
            if attempt == "0" and os.environ["RANK"] == "0":
                raise ValueError("the first time")

        notebook_launcher(flaky, num_processes=2, max_restarts=1)
    """)
    assert shown.error is None, shown.traceback
    assert {"00", "10", "11"} <= {file.name for file in tmp_path.iterdir()}


def test_a_rank_that_is_killed(notebook: Notebook) -> None:
    shown = notebook.run("notebook_launcher(lambda: os.kill(os.getpid(), 9), num_processes=2)")
    assert shown.error == "LaunchError"
    assert "was ended by SIGKILL: usually the machine ran out of memory" in shown.message


def test_a_rank_that_leaves_without_a_word(notebook: Notebook) -> None:
    shown = notebook.run("notebook_launcher(lambda: os._exit(0), num_processes=2)")
    assert shown.error == "LaunchError", shown.traceback
    assert "has ended by itself" in shown.message


def test_an_accelerator_in_the_notebook(notebook: Notebook) -> None:
    shown = notebook.run("""
        from accelerate import Accelerator

        accelerator = Accelerator()
        notebook_launcher(train, (1,), num_processes=2)
    """)
    assert shown.error == "ConfigurationError"
    assert "Make it inside of the function that you pass" in shown.message
    shown = notebook.run("accelerator.end_training()\nnotebook_launcher(train, (1,), num_processes=2)")
    assert shown.error is None, shown.traceback


def test_an_interrupt_ends_the_ranks(another: Notebook, tmp_path: Path) -> None:
    another.run(START)
    begin = time.monotonic()
    shown = another.run(f"""
        def wait():
            import signal, time
            open(r"{tmp_path}/" + str(os.getpid()), "w").close()
            while len(os.listdir(r"{tmp_path}")) < 2:
                time.sleep(0.05)
            if os.environ["RANK"] == "0" and os.getpgrp() == os.getppid():
                os.killpg(os.getpgrp(), signal.SIGINT)  # what Kernel > Interrupt sends, and to whom
            time.sleep(60)

        notebook_launcher(wait, num_processes=2)
    """)
    assert shown.error == "KeyboardInterrupt", shown.traceback
    assert time.monotonic() - begin < 30
    pids = [int(file.name) for file in tmp_path.iterdir()]
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    shown = another.run("notebook_launcher(train, (1,), num_processes=2)")
    assert shown.error is None, shown.traceback
    assert len(ranks(shown.text)) == 2


def test_the_line_that_used_the_gpu_first_is_named(another: Notebook, tmp_path: Path) -> None:
    (tmp_path / "greedy.py").write_text("import torch\n\ntorch.cuda.init()\n")
    another.run(FAKE_CUDA)
    another.run("from accelerate import notebook_launcher")
    another.run(f"import sys\nsys.path.insert(0, r'{tmp_path}')\nimport greedy")
    shown = another.run("notebook_launcher(print, num_processes=2)")
    assert shown.error == "ConfigurationError"
    lines = [line.strip() for line in shown.message.splitlines()]
    assert "CUDA is in use in this notebook already" in lines[0]
    assert lines[1] == "In[3], line 3: import greedy"
    assert lines[2] == f"through {tmp_path}/greedy.py, line 3: torch.cuda.init()"
    assert "restart the kernel" in lines[3]


def test_a_gpu_that_was_used_before_anybody_looked(another: Notebook) -> None:
    another.run(f"{FAKE_CUDA}\ntorch.cuda.init()")
    shown = another.run("from accelerate import notebook_launcher\nnotebook_launcher(print, num_processes=2)")
    assert shown.error == "ConfigurationError"
    assert "before accelerate was imported, so that the line is not known" in shown.message


def test_the_page_on_notebooks(another: Notebook) -> None:
    cells = [code for page, code in blocks("python") if page == "notebooks.md"]
    shown = [another.run(cell) for cell in cells]
    assert [one.error for one in shown] == [None, None], [one.traceback for one in shown]
    assert "2 processes on cpu" in shown[0].text
