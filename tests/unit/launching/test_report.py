import signal

from accelerate.launching.report import (
    RankFailure,
    failure_report,
    first_failure,
    last_traceback,
    restart_notice,
)

BOOM = 'Traceback (most recent call last):\n  File "t.py", line 3, in <module>\nValueError: boom'
PEER = (
    "Traceback (most recent call last):\n  ...\nRuntimeError: [pair.cc:553] Connection closed by peer [::1]:5"
)


def failed(rank: int, at: float = 0.0, return_code: int = 1, **facts: object) -> RankFailure:
    return RankFailure(rank=rank, at=at, return_code=return_code, **facts)


def test_the_earliest_failure_is_the_first() -> None:
    early, late = failed(3, 1.0, traceback=BOOM), failed(0, 1.5, traceback=BOOM)
    assert first_failure([late, early]) is early


def test_a_lost_peer_is_never_the_cause_even_if_seen_earlier() -> None:
    echo, killed = failed(0, 1.0, traceback=PEER), failed(1, 1.01, return_code=-signal.SIGKILL)
    assert first_failure([echo, killed]) is killed


def test_a_stopped_rank_is_never_the_cause() -> None:
    stopped = failed(0, 1.0, return_code=-signal.SIGTERM, stopped=True)
    assert first_failure([stopped, failed(1, 2.0)]).rank == 1


def test_report_ends_with_the_traceback_of_the_first() -> None:
    failures = [
        failed(0, 2.0, traceback=PEER, log="/tmp/x/rank_0.log"),
        failed(1, 1.0, traceback=BOOM),
        failed(2, 2.0, return_code=-signal.SIGTERM, stopped=True),
        failed(3, 2.1, traceback=BOOM, log="/tmp/x/rank_3.log"),
    ]
    assert failure_report(failures, 4) == (
        "accelerate launch: rank 1 of 4 failed with exit code 1.\n"
        "  rank 0: RuntimeError: [pair.cc:553] Connection closed by peer [::1]:5  (/tmp/x/rank_0.log)\n"
        "  rank 2: stopped by the launcher\n"
        "  rank 3: same error  (/tmp/x/rank_3.log)\n"
        f"rank 1:\n{BOOM}\n"
    )


def test_many_ranks_with_one_error_take_one_line() -> None:
    failures = [failed(rank, float(rank), traceback=BOOM, log=f"/x/{rank}.log") for rank in range(8)]
    assert "  ranks 1 to 7: same error  (/x/1.log and 6 more beside it)\n" in failure_report(failures, 8)


def test_report_of_a_signal_says_its_name_and_what_it_usually_means() -> None:
    report = failure_report([failed(1, return_code=-signal.SIGKILL)], 2)
    assert report.startswith("accelerate launch: rank 1 of 2 was ended by SIGKILL.\n")
    assert "out of memory" in report


def test_report_of_an_exit_without_traceback() -> None:
    report = failure_report([failed(1, return_code=3, last_line="t.py: error: no --lr")], 2)
    assert report.splitlines()[0].endswith("failed with exit code 3.")
    assert report.splitlines()[-1].endswith("its last line: t.py: error: no --lr")


def test_restart_notice_is_one_line() -> None:
    notice = restart_notice([failed(1, traceback=BOOM)], 1, 3)
    assert notice == (
        "accelerate launch: rank 1 failed with exit code 1: ValueError: boom; "
        "starting all ranks again (1 of 3)\n"
    )


def test_last_traceback_of_plain_output() -> None:
    assert last_traceback("all is well\nValueError: said in passing\n") is None


def test_last_traceback_takes_the_last_one() -> None:
    old = BOOM.replace("boom", "caught")
    assert last_traceback(f"{old}\ngoing on\n{BOOM}\n") == BOOM


def test_last_traceback_keeps_the_chain() -> None:
    chain = f"{BOOM}\n\nDuring handling of the above exception, another exception occurred:\n\n{PEER}"
    assert last_traceback(f"before\n{chain}\n") == chain


def test_last_traceback_without_prefix_bar_and_native_log_lines() -> None:
    lines = "\n".join(f"[rank1]: {line}" for line in BOOM.split("\n"))
    noise = "[rank1]:[W1201 04:21:16.1 ProcessGroupNCCL.cpp:1524] Warning: not destroyed\n"
    assert last_traceback(f"\r 10%|#  [00:01]{lines}\n{noise}") == BOOM


def test_last_traceback_without_colours() -> None:
    coloured = BOOM.replace("ValueError", "\x1b[1;35mValueError\x1b[0m")
    assert last_traceback(coloured) == BOOM


def test_last_traceback_of_a_script_that_does_not_parse() -> None:
    text = '  File "t.py", line 2\n    def f(:\n          ^\nSyntaxError: invalid syntax'
    assert last_traceback(f"hello\n{text}\n") == text
    failure = failed(0, traceback=text)
    assert failure.headline == "SyntaxError: invalid syntax"


def test_a_syntax_error_in_an_imported_module_keeps_the_frames_above_it() -> None:
    text = (
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    import bad\n'
        '  File "bad.py", line 1\n    x = (\n        ^\nSyntaxError: never closed'
    )
    assert last_traceback(text) == text


def test_last_traceback_of_an_exception_group() -> None:
    text = (
        "  + Exception Group Traceback (most recent call last):\n  |   File 't.py'\n"
        "  | ExceptionGroup: two (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n    |   File 't.py'\n    | ValueError: boom\n"
        "    +------------------------------------"
    )
    assert last_traceback(text) == text


def test_headline_of_a_message_of_many_lines() -> None:
    failure = failed(0, traceback=f"{BOOM} and\n  more indented\nthan one line")
    assert failure.headline == "ValueError: boom and"


def test_a_crash_in_native_code() -> None:
    text = "Fatal Python error: Segmentation fault\n\nCurrent thread (most recent call first):\n  File 't.py'"
    assert last_traceback(f"x\n{text}\n") == text
    assert failed(0, traceback=text).headline == "Fatal Python error: Segmentation fault"


def test_a_rank_of_another_machine_and_the_folder_of_logs_are_named() -> None:
    far = RankFailure(rank=2, return_code=1, at=1.0, traceback="Traceback ...", where="machine 1 (far)")
    near = RankFailure(rank=0, return_code=-15, at=2.0, stopped=True)
    lines = failure_report([near, far], 4, "/logs/1", ["machine 2 is silent"]).splitlines()
    assert lines[0] == "accelerate launch: rank 2 of 4 on machine 1 (far) failed with exit code 1."
    assert lines[1:4] == [
        "  rank 0: stopped by the launcher",
        "  machine 2 is silent",
        "  logs of all ranks: /logs/1",
    ]


def test_a_restart_for_another_machine() -> None:
    assert "a rank failed on another machine" in restart_notice([], 1, 3)
