import pytest

from accelerate.test_utils.checks import assert_exception, capture_call_output


@pytest.mark.parametrize("msg", [None, "wrong"])
def test_an_expected_exception_passes(msg: str | None) -> None:
    with assert_exception(ValueError, msg):
        raise UnicodeError("it is wrong")


def test_no_exception_fails() -> None:
    with pytest.raises(AssertionError, match="ran without issue"), assert_exception(ValueError):
        pass


def test_another_exception_fails_and_is_the_cause() -> None:
    with (
        pytest.raises(AssertionError, match=r"got <class 'KeyError'>") as caught,
        assert_exception(ValueError),
    ):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)


def test_another_message_fails() -> None:
    with (
        pytest.raises(AssertionError, match="Expected message 'right' to be in exception but got 'wrong'"),
        assert_exception(ValueError, "right"),
    ):
        raise ValueError("wrong")


def test_printed_text_is_returned(capsys: pytest.CaptureFixture[str]) -> None:
    assert capture_call_output(print, "x", end="!") == "x!"
    assert capsys.readouterr().out == ""
