"""A menu for terminals, at the path that other code imports it from."""

from accelerate.commands.menu.selection_menu import BulletMenu

__all__ = ["BulletMenu"]
