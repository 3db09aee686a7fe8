"""BulletMenu: one choice out of several. Not used inside: for code that imports it."""

from collections.abc import Sequence

__all__ = ["BulletMenu"]


class BulletMenu:
    """A question with choices, on a terminal or without one.

    Args:
        prompt: the question.
        choices: what can be chosen.
    """

    def __init__(self, prompt: str | None = None, choices: Sequence[str] = ()) -> None:
        self.position = 0
        self.choices = choices
        self.prompt = prompt

    def run(self, default_choice: int = 0) -> int:
        """Ask, and return the index of what was chosen.

        On a terminal with the arrow keys; otherwise a line of standard input names the choice.

        Args:
            default_choice: index that an empty answer means.

        Raises:
            ConfigurationError: standard input has ended.
        """
        from accelerate.commands.config.interview import interview

        texts = [str(choice) for choice in self.choices]
        chosen = interview().choose(self.prompt or "", texts, texts[default_choice])
        self.position = texts.index(chosen)
        return self.position
