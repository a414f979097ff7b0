"""A re-run replaces its own model's table and nothing else."""

from __future__ import annotations

import pytest

from benchmarks.peer_tables import markers, with_model

BEGIN, END = markers("peers")
PAGE = f"# Page\n\nabove\n\n{BEGIN}\n{END}\n\nbelow\n"


def test_a_first_model_is_put_between_the_markers() -> None:
    first, last = markers("peers on a.gguf")
    assert (
        with_model(PAGE, "a.gguf", "one")
        == f"# Page\n\nabove\n\n{BEGIN}\n{first}\none\n{last}\n{END}\n\nbelow\n"
    )


def test_another_model_is_added_behind_it() -> None:
    page = with_model(with_model(PAGE, "a.gguf", "one"), "b.gguf", "two")
    assert page.index("one") < page.index("two") < page.index(END)
    assert page.startswith("# Page\n\nabove\n")
    assert page.endswith("\nbelow\n")


def test_a_rerun_replaces_only_its_own_model() -> None:
    page = with_model(with_model(PAGE, "a.gguf", "one"), "b.gguf", "two")
    assert with_model(page, "a.gguf", "three") == page.replace("one", "three")
    assert with_model(page, "a.gguf", "one") == page


def test_a_model_whose_name_begins_like_another_is_its_own() -> None:
    page = with_model(with_model(PAGE, "a.gguf.part", "one"), "a.gguf", "two")
    assert "one" in page
    assert "two" in page


def test_a_page_without_markers_is_refused_with_the_lines_to_add() -> None:
    with pytest.raises(ValueError, match="put these lines where they belong") as refused:
        with_model("# Page\n", "a.gguf", "one")
    assert BEGIN in str(refused.value)
    assert END in str(refused.value)


def test_a_part_that_is_not_closed_is_refused() -> None:
    first, last = markers("peers on a.gguf")
    page = f"{BEGIN}\n{first}\none\n{END}\n"
    with pytest.raises(ValueError, match="not closed") as refused:
        with_model(page, "a.gguf", "two")
    assert last in str(refused.value)


def test_the_projects_own_page_has_a_place(request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs/benchmarks.md").read_text(encoding="utf-8")
    changed = with_model(page, "no such model", "inserted")
    assert changed.replace("inserted", "").startswith(page[: page.index(BEGIN)])
    assert changed.endswith(page[page.index(END) :])
