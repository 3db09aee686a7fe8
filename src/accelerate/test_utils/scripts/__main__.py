"""All scripts one after the other, in one start: what `accelerate test` launches."""

from accelerate.accelerator import Accelerator
from accelerate.test_utils.scripts import test_distributed_data_loop, test_ops, test_script, test_sync
from accelerate.test_utils.scripts.report import run, tell_where


def main() -> None:
    """Run all checks."""
    tell_where()
    run("core", test_script.CHECKS)
    run("operations", test_ops.CHECKS)
    run("data loop", test_distributed_data_loop.CHECKS)
    run("sync", test_sync.CHECKS)
    Accelerator().end_training()


if __name__ == "__main__":
    main()
