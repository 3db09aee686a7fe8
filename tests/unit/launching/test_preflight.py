from accelerate.launching.machines import Summary
from accelerate.launching.preflight import version_conflict


def summary(*torch_versions: str, python: str = "3.11.7") -> Summary:
    return Summary(
        names={index: f"machine {index} (h{index})" for index in range(len(torch_versions))},
        versions={
            index: {"python": python if index else "3.11.2", "torch": version, "accelerate": "2.0"}
            for index, version in enumerate(torch_versions)
        },
    )


def test_equal_versions_are_no_conflict() -> None:
    assert version_conflict(summary("2.13.0", "2.13.0")) == ""


def test_each_version_that_differs_is_told_with_its_machines() -> None:
    text = version_conflict(summary("2.13.0", "2.12.0", "2.12.0", python="3.12.1"))
    assert "torch 2.13.0 on machine 0 (h0), torch 2.12.0 on machine 1 (h1) and 1 more" in text
    assert "python 3.11 on machine 0 (h0), python 3.12 on machine 1 (h1) and 1 more" in text
    assert "accelerate" not in text
