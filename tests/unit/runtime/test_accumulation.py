import pytest

from accelerate.runtime.accumulation import Accumulation


class Loader:
    def __init__(self, end_of_dataloader=False, remainder=-1):
        self.end_of_dataloader = end_of_dataloader
        self.remainder = remainder


@pytest.fixture
def window():
    return Accumulation()


def ticks(window, ends):
    loader, step, synced = Loader(), 0, []
    window.add_loader(loader)
    for end in ends:
        loader.end_of_dataloader = end
        step = window.tick(step)
        synced.append((window.sync_gradients, step))
    window.remove_loader(loader)
    return synced


def test_an_unconfigured_window_synchronises_every_step(window):
    assert window.sync_gradients
    assert window.num_steps == 1
    assert not window.end_of_dataloader
    assert window.remainder == -1
    assert window.__dict__ == {}


def test_the_last_batch_of_a_loader_ends_the_window_and_the_count(window):
    window.configure({"num_steps": 2})
    assert ticks(window, [False] * 4 + [True]) == [(False, 1), (True, 2), (False, 3), (True, 4), (True, 0)]


def test_the_loader_is_ignored_on_request(window):
    window.configure({"num_steps": 2, "sync_with_dataloader": False})
    assert [sync for sync, _ in ticks(window, [False] * 4 + [True])] == [False, True, False, True, False]


def test_loaders_nest_and_are_held_weakly(window):
    outer, inner = Loader(remainder=3), Loader(True, 1)
    window.add_loader(outer)
    window.add_loader(inner)
    assert window.active_loader is inner
    assert (window.end_of_dataloader, window.remainder) == (True, 1)
    window.remove_loader(inner)
    assert window.active_loader is outer
    assert (window.end_of_dataloader, window.remainder) == (False, 3)
    del outer
    assert window.active_loader is None
    assert (window.end_of_dataloader, window.remainder) == (False, -1)


def test_settings_are_read_live(window):
    window.configure({"num_steps": 2})
    window.plugin_kwargs["num_steps"] = 5
    assert window.num_steps == 5
    window.reset()
    assert window.num_steps == 1


def test_what_remains_of_a_loop_after_a_reset_is_no_setting(window):
    loader = Loader()
    window.add_loader(loader)
    window.reset()
    window.remove_loader(loader)
    assert window.num_steps == 1
    assert window.tick(0) == 1


def test_new_settings_find_every_step_synchronised(window):
    window.configure({"num_steps": 2})
    window.tick(0)
    assert not window.sync_gradients
    window.configure({"num_steps": 1})
    assert window.sync_gradients
