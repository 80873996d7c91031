"""Names that nothing uses are found."""

from pathlib import Path

from scripts.dead_code import find_dead_code


def test_a_function_that_nothing_calls_is_found_and_a_field_of_a_contract_is_not(tmp_path: Path) -> None:
    contracts = tmp_path / "sdk" / "drumline" / "contracts"
    contracts.mkdir(parents=True)
    (contracts / "shop.py").write_text("class Shop:\n    colour_of_door: str\n\n\ndef paint_the_door(): ...\n")

    assert list(find_dead_code(tmp_path)) == [
        "sdk/drumline/contracts/shop.py:1: unused class 'Shop'",
        "sdk/drumline/contracts/shop.py:5: unused function 'paint_the_door'",
    ]
