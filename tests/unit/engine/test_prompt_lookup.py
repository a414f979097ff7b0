"""Proposals come from the text so far, their length follows what pays, and failures end them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeseek.engine.speculative import MAX_ROWS, PromptLookup, StepCosts


def free_rows() -> StepCosts:
    """Steps that cost the same with any number of rows: as much as allowed is proposed."""
    costs = StepCosts()
    for rows in (1, 2, 4, 8, 16):
        costs.note(rows, 0.01)
    return costs


def dear_rows() -> StepCosts:
    """Steps whose cost grows with their rows: proposals cannot pay."""
    costs = StepCosts()
    for rows in (1, 2, 4, 8, 16):
        costs.note(rows, 0.01 * rows)
    return costs


def test_what_followed_the_last_tokens_is_proposed() -> None:
    lookup = PromptLookup([1, 2, 3, 4, 5, 6, 9, 2, 3, 4])
    assert lookup.propose(3, free_rows(), 1) == (5, 6, 9)


def test_the_latest_of_several_occurrences_is_taken() -> None:
    lookup = PromptLookup([1, 2, 7, 1, 2, 8, 1, 2])
    assert lookup.propose(1, free_rows(), 1) == (8,)


def test_a_longer_match_beats_a_later_one() -> None:
    lookup = PromptLookup([5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2])
    assert lookup.propose(1, free_rows(), 1) == (7,)


def test_a_short_period_is_continued_beyond_the_end() -> None:
    lookup = PromptLookup([1, 2, 3, 1, 2, 3, 1, 2])
    assert lookup.propose(7, free_rows(), 1) == (3, 1, 2, 3, 1, 2, 3)


def test_nothing_is_proposed_for_a_text_without_repetition() -> None:
    assert PromptLookup(list(range(100))).propose(8, free_rows(), 1) == ()


def test_nothing_is_proposed_where_rows_cost_as_much_as_steps() -> None:
    assert PromptLookup([1, 2, 3, 4, 1, 2, 3]).propose(8, dear_rows(), 1) == ()


def test_a_copy_goes_on_behind_a_substituted_token() -> None:
    tokens = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 50, 10, 11, 12]
    lookup = PromptLookup(tokens)
    assert lookup.propose(4, free_rows(), 1) == (13, 14, 15, 16)
    drawn = [13, 99]  # 99 instead of 14
    tokens += drawn
    lookup.learn(drawn)
    assert lookup.propose(3, free_rows(), 1) == (15, 16, 17)


def test_failing_proposals_end_and_come_back_when_they_would_have_been_right() -> None:
    costs = StepCosts()
    tokens = [1, 2, 3, 4] * 3
    lookup = PromptLookup(tokens)
    rounds = 0
    while lookup.propose(8, costs, 1):
        tokens.append(1000 + rounds)
        lookup.learn([tokens[-1]])
        tokens += [1, 2, 3]
        rounds += 1
        assert rounds < 50
    for _ in range(200):
        proposed = lookup.propose(8, costs, 1)
        if proposed:
            break
        expected = tokens[-4]
        tokens.append(expected)
        lookup.learn([expected])
    assert proposed


@given(st.lists(st.integers(0, 3), min_size=1, max_size=120), st.integers(0, MAX_ROWS - 1))
def test_a_proposal_continues_an_earlier_occurrence_of_the_last_tokens(tokens: list[int], limit: int) -> None:
    proposed = PromptLookup(tokens).propose(limit, free_rows(), 1)
    assert len(proposed) <= limit
    whole = [*tokens, *proposed]
    if proposed:
        last = tokens[-2:]
        places = [i for i in range(2, len(tokens)) if tokens[i - 2 : i] == last]
        assert any(whole[i : i + len(proposed)] == list(proposed) for i in places)


@given(st.lists(st.integers(0, 2), min_size=2, max_size=60), st.data())
def test_growing_text_is_indexed_like_whole_text(tokens: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(tokens)))
    grown = tokens[:at]
    lookup = PromptLookup(grown)
    lookup.propose(0, free_rows(), 1)
    grown += tokens[at:]
    lookup.learn([])
    lookup._cursor = 0  # a copy under way is preferred; without one both must agree
    assert lookup.propose(4, free_rows(), 1) == PromptLookup(tokens).propose(4, free_rows(), 1)


def test_the_best_length_is_known_exactly_for_known_costs() -> None:
    costs = StepCosts()
    for rows, seconds in ((1, 1.0), (2, 1.0), (4, 1.0), (8, 2.0), (16, 4.0)):
        costs.note(rows, seconds)
    # Up to 4 rows are free, so three tokens are proposed whatever the chance; a fourth costs a quarter more.
    assert costs.best_length(0.5, 1) == 3
    # Certain tokens: 8 rows for 2.0 or 16 for 4.0 yield the same; the shorter one is enough.
    assert costs.best_length(1.0, 1) == 3
    assert costs.best_length(0.01, 1) == 0


def test_a_full_step_takes_no_proposals() -> None:
    assert free_rows().best_length(1.0, MAX_ROWS) == 0


def test_costs_between_known_sizes_are_interpolated_and_never_fall() -> None:
    costs = StepCosts()
    for rows, seconds in ((1, 1.0), (2, 1.2), (4, 1.1), (8, 1.9), (16, 3.5)):
        costs.note(rows, seconds)
    assert costs.of(4) == pytest.approx(1.2)
    assert costs.of(6) == pytest.approx(1.55)
    assert costs.of(32) == pytest.approx(7.0)
