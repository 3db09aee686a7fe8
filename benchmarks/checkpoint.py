"""Save and load of a model with AdamW: time, processor time and peak memory, beside other ways to do it.

    python benchmarks/checkpoint.py [--megabytes 400] [--rounds 3] [--reference PYTHON]

Each sample is a process of its own, since memory that one needed would be there for the next. Candidates take
turns. `--reference` names a Python whose environment has the library to compare with.

- `torch.save` writes model and optimizer with one torch.save each, and flushes both to the disk: the same
  bytes.
- `raw read` reads the bytes of our checkpoint into tensors that are there, and for the optimizer into new
  ones.
- `unchecked` loads without comparing checksums, to see what that costs.
- `extra` is by how much the peak of the resident memory exceeded what was resident before. A fresh optimizer
  has no state yet, which is twice the model: that much is new in any case. `again` loads into a run that has
  it.
"""

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from common import interleaved, medians, run_json, table

WIDTH = 2048


# ---- in a process of its own -------------------------------------------------------------------------------


def _resident(key: str) -> int:
    """Return a field of this process's status in bytes: VmRSS, or VmHWM for its peak."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{key}:")[1].split()[0]) * 1024


@contextmanager
def _measured(result: dict[str, float]) -> Iterator[None]:
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, usage, start = _resident("VmRSS"), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    yield
    result["wall"] = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    result["cpu"] = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    result["extra"] = (_resident("VmHWM") - before) / 1e6


def _objects(megabytes: int, *, stepped: bool) -> tuple[Any, Any]:
    import torch

    num_layers = max(1, round(megabytes * 1e6 / (4 * WIDTH * WIDTH)))
    model = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(num_layers)))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    if stepped:
        for parameter in model.parameters():
            parameter.grad = torch.rand_like(parameter)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def _accelerate(folder: str, model: Any, optimizer: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model, optimizer)
    return lambda: accelerator.save_state(folder), lambda: accelerator.load_state(folder)


def _unchecked(folder: str, model: Any, optimizer: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    from accelerate.checkpoint import manifest

    manifest.problems = partial(manifest.problems, contents=False)
    return _accelerate(folder, model, optimizer)


def _torch_save(folder: str, model: Any, optimizer: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    named = {"model.pt": model, "optimizer.pt": optimizer}

    def save() -> None:
        os.makedirs(folder, exist_ok=True)
        for name, item in named.items():
            with open(f"{folder}/{name}", "wb") as file:
                torch.save(item.state_dict(), file)
                file.flush()
                os.fsync(file.fileno())

    def load() -> None:
        for name, item in named.items():
            item.load_state_dict(torch.load(f"{folder}/{name}", weights_only=True))

    return save, load


def _dcp(folder: str, model: Any, optimizer: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import warnings

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    warnings.simplefilter("ignore")

    def states() -> dict[str, Any]:
        of_model, of_optimizer = get_state_dict(model, optimizer)
        return {"model": of_model, "optimizer": of_optimizer}

    def load() -> None:
        state = states()
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])

    return lambda: dcp.save(states(), checkpoint_id=folder, no_dist=True), load


def _raw_read(folder: str, model: Any, optimizer: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    import torch

    def read(path: str, targets: list[Any]) -> None:
        with open(path, "rb", buffering=0) as file:
            for target in targets:
                view = target.detach().view(-1).view(torch.uint8).numpy().data
                while view:
                    view = view[file.readinto(view) :]

    def load() -> None:
        parameters = list(model.parameters())
        read(f"{folder}/model.safetensors", parameters)
        # As many new tensors as the optimizer will have.
        optimizer.extra = [torch.empty_like(parameter) for parameter in parameters for _ in range(2)]
        read(f"{folder}/optimizer.bin", optimizer.extra)

    return lambda: None, load


CANDIDATES = {
    "accelerate": _accelerate,
    "unchecked": _unchecked,
    "again": _accelerate,
    "torch.save": _torch_save,
    "torch DCP": _dcp,
    "raw read": _raw_read,
}


def _sample(kind: str, action: str, folder: str, megabytes: int) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    model, optimizer = _objects(megabytes, stepped=action == "save" or kind == "again")
    save, load = CANDIDATES[kind](folder, model, optimizer)
    result: dict[str, float] = {}
    os.sync()
    with _measured(result):
        save() if action == "save" else load()
    return result


# ---- all of them, in turn ----------------------------------------------------------------------------------


def _run(python: str, kind: str, action: str, folder: str, megabytes: int) -> dict[str, float]:
    if action == "save":
        shutil.rmtree(folder, ignore_errors=True)
    arguments = (__file__, "--sample", kind, action, folder, str(megabytes))
    result: dict[str, float] = run_json(python, *arguments)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=400, help="size of the model's weights")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reference", help="a Python whose environment has the library to compare with")
    parser.add_argument("--folder", help="where to write; a temporary folder by default")
    parser.add_argument("--sample", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.sample:
        kind, action, folder, megabytes = args.sample
        print(json.dumps(_sample(kind, action, folder, int(megabytes))))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as home:
        _compare(Path(home), args)


def _compare(home: Path, args: argparse.Namespace) -> None:
    pythons = {kind: (sys.executable, kind) for kind in CANDIDATES}
    if args.reference:
        pythons["reference"] = (args.reference, "accelerate")
    for action in ("save", "load"):
        runs = {}
        for name, (python, kind) in pythons.items():
            reads_ours = name in ("raw read", "unchecked", "again")
            if action == "load" or not reads_ours:
                folder = str(home / ("accelerate" if reads_ours else name))
                runs[name] = partial(_run, python, kind, action, folder, args.megabytes)
        results = {name: medians(samples) for name, samples in interleaved(runs, args.rounds).items()}
        base = results["torch.save" if action == "save" else "raw read"]
        rows = [
            [
                name,
                f"{result['wall']:.2f} s",
                f"{result['wall'] / base['wall']:.2f}x",
                f"{result['cpu']:.2f} s",
                f"{result['cpu'] / base['cpu']:.2f}x",
                f"{result['extra']:.0f} MB",
            ]
            for name, result in results.items()
        ]
        print(f"{action}, {args.megabytes} MB of weights, median of {args.rounds}")
        print(table(["", "wall", "", "cpu", "", "extra"], rows), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
