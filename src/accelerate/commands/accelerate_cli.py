"""The console script `accelerate`: finds the command, imports that one alone and hands over."""

import importlib
import sys

from accelerate.commands.utils import CustomArgumentParser, end_quietly_on_interrupt

__all__ = ["COMMANDS", "main"]

# Command -> (module, its parser, what it does in one line). The module has main(arguments) -> exit status.
COMMANDS = {
    "checkpoint": ("accelerate.commands.checkpoint", "List checkpoints, and tell whether they are whole."),
    "config": ("accelerate.commands.config", "Ask how this machine trains, and keep the answers in a file."),
    "env": ("accelerate.commands.env", "Print what this machine has, for bug reports."),
    "launch": ("accelerate.commands.launch", "Start a script on the GPUs or processors of this machine."),
    "test": ("accelerate.commands.test", "Check this installation, on one process or several."),
    "tpu-config": ("accelerate.commands.tpu", "Run commands on all machines of a TPU pod."),
}


def main() -> int:
    """Run the command that the arguments of this process name, and return the exit status."""
    end_quietly_on_interrupt("accelerate")
    name, rest = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else (None, [])
    if name in COMMANDS:
        module = importlib.import_module(COMMANDS[name][0])
        status: int = module.main(rest, prog=f"accelerate {name}")
        return status
    parser = _parser()
    if name is None:
        parser.print_help()
        return 1
    parser.parse_args(sys.argv[1:])
    return 0


def _parser() -> CustomArgumentParser:
    """Return a parser that knows the commands by name and by what they do, and nothing else of them."""
    parser = CustomArgumentParser("accelerate", usage="accelerate <command> [<args>]", allow_abbrev=False)
    parser.set_defaults(func=None)
    commands = parser.add_subparsers(title="commands", metavar="<command>", required=True)
    for name, (_, purpose) in COMMANDS.items():
        commands.add_parser(name, help=purpose, add_help=False)
    parser.epilog = "accelerate <command> --help tells what a command takes."
    return parser


if __name__ == "__main__":
    sys.exit(main())
