from hypothesis import given
from hypothesis import strategies as st

from accelerate.launching.relay import GOES_ON_AFTER, HOLD_PATIENCE, LINE_PATIENCE, TAIL_BYTES, Relay

TRACEBACK = b"Traceback (most recent call last):\n  File ...\nValueError: no\n"


def test_whole_lines_pass_at_once_and_a_rest_waits() -> None:
    relay = Relay()
    assert relay.feed(b"one\ntw", 0.0) == b"one\n"
    assert relay.tick(LINE_PATIENCE / 2) == b""
    assert relay.feed(b"o\n", LINE_PATIENCE / 2) == b"two\n"


def test_a_line_that_redraws_itself_passes_soon() -> None:
    relay = Relay()
    assert relay.feed(b"\r 10%", 0.0) == b""
    assert relay.patience == LINE_PATIENCE
    assert relay.tick(LINE_PATIENCE) == b"\r 10%"
    assert relay.patience is None


def test_a_traceback_is_held_until_it_is_told() -> None:
    relay = Relay()
    assert relay.feed(b"step 1\n" + TRACEBACK, 5.0) == b"step 1\n"
    assert relay.trouble_at == 5.0
    assert relay.feed(b"more\n", 5.1) == b""
    assert relay.finish(show_held=False) == b""
    assert bytes(relay.tail).endswith(TRACEBACK + b"more\n")


def test_a_rank_that_goes_on_gets_its_traceback_shown_in_order() -> None:
    relay = Relay()
    relay.feed(TRACEBACK, 0.0)
    assert relay.feed(b"caught it\n", 0.1) == b""
    assert relay.feed(b"on\n", GOES_ON_AFTER) == TRACEBACK + b"caught it\non\n"
    assert relay.feed(b"and on\n", GOES_ON_AFTER) == b"and on\n"


def test_a_rank_that_is_silent_is_believed_for_a_while() -> None:
    relay = Relay()
    relay.feed(TRACEBACK, 0.0)
    assert relay.feed(b"[rank1]:[W1201 04:21:16.1 ProcessGroupNCCL.cpp:1] Warning: ...\n", 5.0) == b""
    assert relay.tick(HOLD_PATIENCE - 0.1) == b""
    assert relay.tick(HOLD_PATIENCE).startswith(TRACEBACK)


def test_the_last_words_of_a_rank_that_was_told_to_end_stay_held() -> None:
    relay = Relay()
    relay.ending = True
    relay.feed(TRACEBACK, 0.0)
    assert relay.feed(b"more\n", GOES_ON_AFTER) == b""
    assert relay.tick(HOLD_PATIENCE) == b""
    assert relay.finish(show_held=False) == b""


def test_a_traceback_right_behind_a_progress_bar() -> None:
    relay = Relay()
    assert relay.feed(b"\r 10%|# [00:01]" + TRACEBACK, 0.0) == b"\r 10%|# [00:01]"
    assert relay.finish(show_held=False) == b""


def test_a_traceback_with_the_prefix_that_torch_puts() -> None:
    relay = Relay()
    assert relay.feed(b"[rank1]: Traceback (most recent call last):\n[rank1]:  File\n", 0.0) == b""


def test_a_traceback_that_arrives_in_pieces() -> None:
    relay = Relay()
    assert relay.feed(TRACEBACK[:10], 0.0) == b""
    assert relay.feed(TRACEBACK[10:], 0.001) == b""
    assert relay.finish(show_held=True) == TRACEBACK


def test_a_syntax_error_of_the_script_is_held_too() -> None:
    relay = Relay()
    assert relay.feed(b'  File "/x/train.py", line 2\n    def f(:\nSyntaxError: no\n', 0.0) == b""


def test_output_that_talks_of_errors_passes() -> None:
    relay = Relay()
    text = b"ValueError: was handled\nsee the Traceback above\n"
    assert relay.feed(text, 0.0) == text


def test_the_hold_is_bounded() -> None:
    relay = Relay()
    relay.feed(TRACEBACK, 0.0)
    assert len(relay.feed(b"x" * (TAIL_BYTES + 1), 0.1)) > TAIL_BYTES


def test_prefixed_lines() -> None:
    relay = Relay(b"[default1]:")
    assert relay.feed(b"one\n\ntwo\n", 0.0) == b"[default1]:one\n[default1]:two\n"
    assert relay.feed(b"10%\r20%\r3", 0.0) == b"[default1]:10%\n[default1]:20%\n"
    assert relay.tick(10.0) == b""
    assert relay.finish(show_held=True) == b"[default1]:3\n"


@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r", b"line\n", TRACEBACK, TRACEBACK[:7]]), max_size=20),
    st.data(),
)
def test_nothing_is_lost_or_reordered(pieces: list[bytes], data: st.DataObject) -> None:
    relay = Relay()
    now, shown = 0.0, b""
    for piece in pieces:
        shown += relay.feed(piece, now)
        now += data.draw(st.sampled_from([0.0, LINE_PATIENCE, HOLD_PATIENCE]))
        shown += relay.tick(now)
    assert shown + relay.finish(show_held=True) == b"".join(pieces)


def test_a_line_that_redraws_itself_keeps_its_prefix() -> None:
    relay = Relay(b"[0] ", redraws=True)
    assert relay.feed(b"one\ntwo\n", 0.0) == b"[0] one\n[0] two\n"
    assert relay.feed(b"\r 10%", 1.0) == b""
    assert relay.tick(1.0 + LINE_PATIENCE) == b"\r[0]  10%"
    assert relay.feed(b"\r 20%\r\nend\r\n", 2.0) == b"\r[0]  20%\r\n[0] end\r\n"
    assert relay.feed(b"name: ", 3.0) == b""
    assert relay.tick(4.0) == b"[0] name: "
    assert relay.feed(b"me\n", 5.0) == b"me\n"
