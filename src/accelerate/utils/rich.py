"""Tracebacks of uncaught exceptions in colour: importing this module switches them on. Imported by users.

A home in the place of a door, since to import it is all that there is to do.
"""

from accelerate.compat.probes import is_rich_available

if not is_rich_available():
    raise ModuleNotFoundError(
        "accelerate.utils.rich needs the package rich and ACCELERATE_ENABLE_RICH=1 in the environment: run "
        "`pip install rich` and set the variable, or leave out this import"
    )

from rich.traceback import install

install(show_locals=False)
